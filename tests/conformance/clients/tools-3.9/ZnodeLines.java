import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import kafka.cluster.Broker;
import kafka.cluster.EndPoint;
import kafka.api.LeaderAndIsr;
import kafka.controller.LeaderIsrAndControllerEpoch;
import kafka.controller.ReplicaAssignment;
import kafka.zk.BrokerIdZNode;
import kafka.zk.BrokerInfo;
import kafka.zk.ClusterIdZNode;
import kafka.zk.ConfigEntityZNode;
import kafka.zk.ControllerEpochZNode;
import kafka.zk.ControllerZNode;
import kafka.zk.DelegationTokenInfoZNode;
import kafka.zk.ExtendedAclStore;
import kafka.zk.FeatureZNode;
import kafka.zk.LiteralAclStore$;
import kafka.zk.MigrationZNode;
import kafka.zk.ProducerIdBlockZNode;
import kafka.zk.ReassignPartitionsZNode;
import kafka.zk.ResourceZNode;
import kafka.zk.TopicPartitionStateZNode;
import kafka.zk.TopicZNode;
import kafka.zk.ZKControllerRegistration;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.types.Password;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.scram.ScramCredential;
import org.apache.kafka.common.security.scram.internals.ScramCredentialUtils;
import org.apache.kafka.common.security.token.delegation.TokenInformation;
import org.apache.kafka.common.utils.Sanitizer;
import org.apache.kafka.metadata.migration.ZkMigrationLeadershipState;
import org.apache.kafka.security.PasswordEncoder;
import org.apache.kafka.security.authorizer.AclEntry;
import org.apache.kafka.server.common.ProducerIdsBlock;
import org.apache.zookeeper.data.Stat;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Kafka's own codec of znodes (`kafka.zk` of 3.9), asked line by line: see tests/conformance/codec/test_znodes_of_kafka.py.
 *
 * <p>KIND HEX: "ok", what it has read as Kafka writes it, and as JSON, both in hexadecimal; or "refused" and why.
 */
public class ZnodeLines {
    static final ObjectMapper JSON = new ObjectMapper();

    /** What was read, and as Kafka writes it. */
    record Read(Object value, byte[] again) { }

    static <T> Collection<T> list(scala.collection.Iterable<T> found) {
        return CollectionConverters.asJavaCollection(found);
    }

    static Object orNull(Option<?> found) {
        return found.isEmpty() ? null : found.get();
    }

    static Read topic(byte[] data) {
        TopicZNode.TopicIdReplicaAssignment found = TopicZNode.decode("t", data);
        Map<String, Object> replicas = new TreeMap<>(), adding = new TreeMap<>(), removing = new TreeMap<>();
        Map<TopicPartition, ReplicaAssignment> rows = CollectionConverters.asJava(found.assignment());
        rows.forEach((key, each) -> {
            String number = String.valueOf(key.partition());
            replicas.put(number, list(each.replicas()));
            if (!each.addingReplicas().isEmpty()) adding.put(number, list(each.addingReplicas()));
            if (!each.removingReplicas().isEmpty()) removing.put(number, list(each.removingReplicas()));
        });
        Option<Uuid> id = found.topicId();
        Object text = id.isEmpty() ? "" : id.get().toString();
        return new Read(List.of(text, replicas, adding, removing), TopicZNode.encode(id, found.assignment()));
    }

    static Read state(byte[] data) {
        LeaderIsrAndControllerEpoch found = TopicPartitionStateZNode.decode(data, new Stat()).get();
        LeaderAndIsr state = found.leaderAndIsr();
        List<Object> value = List.of(state.leader(), state.leaderEpoch(), list(state.isr()), found.controllerEpoch(),
            state.leaderRecoveryState().value());
        return new Read(value, TopicPartitionStateZNode.encode(found));
    }

    static Read config(byte[] data) {
        Properties found = ConfigEntityZNode.decode(data);
        return new Read(new TreeMap<>(found), ConfigEntityZNode.encode(found));
    }

    static Read broker(byte[] data) {
        BrokerInfo found = BrokerIdZNode.decode(7, data);
        Broker broker = found.broker();
        List<Object> places = new ArrayList<>();
        for (EndPoint each : list(broker.endPoints())) {
            String host = each.host() == null ? "" : each.host();
            places.add(List.of(each.listenerName().value(), host, each.port(), each.securityProtocol().name));
        }
        Map<String, Object> features = new TreeMap<>();
        broker.features().features().forEach((name, range) -> features.put(name, List.of(range.min(), range.max())));
        List<Object> value = new ArrayList<>(List.of(broker.id(), places, features));
        value.add(orNull(broker.rack()));
        return new Read(value, BrokerIdZNode.encode(found));
    }

    static Read controller(byte[] data) {
        ZKControllerRegistration found = ControllerZNode.decodeController(data, 0);
        int epoch = found.kraftEpoch().isEmpty() ? -1 : (Integer) (Object) found.kraftEpoch().get();
        return new Read(List.of(found.broker(), epoch), ControllerZNode.encode(found.broker(), 5L, epoch));
    }

    static Read features(byte[] data) {
        FeatureZNode found = FeatureZNode.decode(data);
        Map<String, Object> levels = new TreeMap<>(CollectionConverters.asJava(found.features()));
        return new Read(found.status().id() == 1 ? levels : Map.of(), FeatureZNode.encode(found));
    }

    static Read producerIds(byte[] data) {
        ProducerIdsBlock found = ProducerIdBlockZNode.parseProducerIdBlockData(data);
        return new Read(found.nextBlockFirstId(), ProducerIdBlockZNode.generateProducerIdBlockJson(found));
    }

    static Read acls(byte[] data) {
        scala.collection.immutable.Set<AclEntry> found = ResourceZNode.decode(data, new Stat()).acls();
        List<List<String>> rows = new ArrayList<>();
        for (AclEntry each : list(found)) {
            rows.add(List.of(each.kafkaPrincipal.toString(), each.host(), each.operation().name(), each.permissionType().name()));
        }
        return new Read(rows, ResourceZNode.encode(found));
    }

    static Read token(byte[] data) {
        TokenInformation found = DelegationTokenInfoZNode.decode(data).get();
        List<Object> value = List.of(found.ownerAsString(), found.tokenRequesterAsString(), found.renewersAsString(),
            found.issueTimestamp(), found.maxTimestamp(), found.expiryTimestamp(), found.tokenId());
        return new Read(value, DelegationTokenInfoZNode.encode(found));
    }

    static Read reassignments(byte[] data) throws Exception {
        var found = ReassignPartitionsZNode.decode(data);
        if (found.isLeft()) throw found.swap().toOption().get();
        var rows = found.toOption().get();
        Map<String, Object> value = new TreeMap<>();
        CollectionConverters.asJava(rows).forEach((key, each) -> value.put(key.toString(), list(each)));
        return new Read(value, ReassignPartitionsZNode.encode(rows));
    }

    static Read migration(byte[] data) {
        ZkMigrationLeadershipState found = MigrationZNode.decode(data, 0, 0);
        return new Read(found.kraftControllerId(), MigrationZNode.encode(found));
    }

    /** Salt, stored key, server key and iterations. */
    static Read credential(byte[] data) {
        ScramCredential found = ScramCredentialUtils.credentialFromString(text(data));
        List<Object> value =
            List.of(hex(found.salt()), hex(found.storedKey()), hex(found.serverKey()), found.iterations());
        return new Read(value, bytes(ScramCredentialUtils.credentialToString(found)));
    }

    /** SECRET, a null character, then the encrypted value; or the password behind two, which is encrypted. */
    static Read password(byte[] data, String cipher, int keyBits) throws Exception {
        String[] parts = text(data).split("\0", -1);
        PasswordEncoder encoder =
            PasswordEncoder.encrypting(new Password(parts[0]), null, cipher, keyBits, 1000);
        if (parts.length == 3) return new Read("", bytes(encoder.encode(new Password(parts[2]))));
        String found = encoder.decode(parts[1]).value();
        return new Read(found, new byte[0]);
    }

    /** Type, pattern and name of a resource: where its ACLs are. */
    static Read aclPath(byte[] data) {
        String[] parts = text(data).split("\0", -1);
        PatternType pattern = PatternType.fromString(parts[1]);
        ResourcePattern resource = new ResourcePattern(ResourceType.fromString(parts[0]), parts[2], pattern);
        String path = pattern == PatternType.LITERAL
            ? LiteralAclStore$.MODULE$.path(resource.resourceType(), resource.name())
            : new ExtendedAclStore(pattern).path(resource.resourceType(), resource.name());
        return new Read(path, new byte[0]);
    }

    static Read sanitized(byte[] data) {
        String found = Sanitizer.sanitize(text(data));
        return new Read(List.of(found, Sanitizer.desanitize(found)), new byte[0]);
    }

    static String hex(byte[] data) {
        return HexFormat.of().formatHex(data);
    }

    static String text(byte[] data) {
        return new String(data, StandardCharsets.UTF_8);
    }

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static Read read(String kind, byte[] data) throws Exception {
        return switch (kind) {
            case "topic" -> topic(data);
            case "state" -> state(data);
            case "config" -> config(data);
            case "broker" -> broker(data);
            case "controller" -> controller(data);
            case "controller_epoch" ->
                new Read(ControllerEpochZNode.decode(data), ControllerEpochZNode.encode(ControllerEpochZNode.decode(data)));
            case "cluster_id" ->
                new Read(ClusterIdZNode.fromJson(data), ClusterIdZNode.toJson(ClusterIdZNode.fromJson(data)));
            case "features" -> features(data);
            case "producer_ids" -> producerIds(data);
            case "acls" -> acls(data);
            case "token" -> token(data);
            case "reassignments" -> reassignments(data);
            case "migration" -> migration(data);
            case "credential" -> credential(data);
            case "password_cbc" -> password(data, "AES/CBC/PKCS5Padding", 128);
            case "password_gcm" -> password(data, "AES/GCM/NoPadding", 256);
            case "acl_path" -> aclPath(data);
            case "sanitized" -> sanitized(data);
            default -> throw new IllegalArgumentException(kind);
        };
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ", -1);
            String answer;
            try {
                Read found = read(words[0], HexFormat.of().parseHex(words[1]));
                answer = "ok ." + hex(found.again()) + " ." + hex(JSON.writeValueAsBytes(found.value()));
            } catch (Throwable error) {
                answer = "refused " + error.getClass().getSimpleName();
            }
            out.println("answer " + answer);
        }
    }
}
