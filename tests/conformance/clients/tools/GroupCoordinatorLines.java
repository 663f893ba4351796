package org.apache.kafka.coordinator.group;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Proxy;
import java.net.InetAddress;
import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.AbstractConfig;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.common.errors.UnknownMemberIdException;
import org.apache.kafka.common.message.ConsumerGroupDescribeResponseData;
import org.apache.kafka.common.message.ConsumerGroupHeartbeatRequestData;
import org.apache.kafka.common.message.ConsumerGroupHeartbeatResponseData;
import org.apache.kafka.common.message.HeartbeatRequestData;
import org.apache.kafka.common.message.JoinGroupRequestData;
import org.apache.kafka.common.message.JoinGroupResponseData;
import org.apache.kafka.common.message.LeaveGroupRequestData;
import org.apache.kafka.common.message.OffsetCommitRequestData;
import org.apache.kafka.common.message.SyncGroupRequestData;
import org.apache.kafka.common.message.SyncGroupResponseData;
import org.apache.kafka.common.metadata.PartitionRecord;
import org.apache.kafka.common.metadata.RegisterBrokerRecord;
import org.apache.kafka.common.metadata.RemoveTopicRecord;
import org.apache.kafka.common.metadata.TopicRecord;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.coordinator.common.runtime.CoordinatorExecutor;
import org.apache.kafka.coordinator.common.runtime.CoordinatorRecord;
import org.apache.kafka.coordinator.common.runtime.CoordinatorResult;
import org.apache.kafka.coordinator.common.runtime.CoordinatorTimer;
import org.apache.kafka.coordinator.common.runtime.KRaftCoordinatorMetadataDelta;
import org.apache.kafka.coordinator.common.runtime.KRaftCoordinatorMetadataImage;
import org.apache.kafka.coordinator.group.metrics.GroupCoordinatorMetrics;
import org.apache.kafka.coordinator.group.modern.share.ShareGroupConfig;
import org.apache.kafka.image.MetadataDelta;
import org.apache.kafka.image.MetadataImage;
import org.apache.kafka.image.MetadataProvenance;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.config.AbstractKafkaConfig;
import org.apache.kafka.timeline.SnapshotRegistry;

/** Kafka's own GroupCoordinatorShard, asked line by line: what Ottla's makes of the same is compared with it. */
public class GroupCoordinatorLines {
    private record Timer(String key, long deadline, long sequence, CoordinatorTimer.TimeoutOperation<CoordinatorRecord> work) { }

    private static final GroupCoordinatorRecordSerde SERDE = new GroupCoordinatorRecordSerde();
    private static final List<String> RECORDS = new ArrayList<>();
    private static final List<String> ANSWERS = new ArrayList<>();
    private static final List<CoordinatorRecord> LOG = new ArrayList<>();
    private static final Map<String, Timer> TIMERS = new HashMap<>();
    private static final ArrayDeque<Runnable> TASKS = new ArrayDeque<>();
    private static final TreeSet<String> SCHEDULED = new TreeSet<>();
    private static long start;
    private static long now;
    private static long sequence;
    private static long metadataOffset;
    private static Map<String, String> settings = Map.of();
    private static MetadataImage image;
    private static GroupCoordinatorShard shard;

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            try {
                if (!line.startsWith("new"))
                    advance(1);
                run(line.split(" "));
                while (!TASKS.isEmpty())
                    TASKS.pop().run();
            } catch (ApiException error) {
                ANSWERS.add(Errors.forException(error).name());
            } catch (Throwable error) {
                ANSWERS.add("thrown:" + error.toString().replace(' ', '_') + "_" + java.util.Arrays.toString(java.util.Arrays.copyOf(error.getStackTrace(), 6)).replace(' ', '_'));
            }
            System.out.println("answer " + String.join(" ", ANSWERS) + "|" + String.join(" ", RECORDS));
            System.out.flush();
            RECORDS.clear();
            ANSWERS.clear();
        }
    }

    private static void run(String[] words) throws Exception {
        switch (words[0]) {
            case "new": restart(words); break; // the only one that is not a millisecond after the one before
            case "reload": shard.onUnloaded(); load(); break;
            case "topic": change(words[1], id(words[2]), Integer.parseInt(words[3])); break;
            case "untopic": change(null, id(words[1]), 0); break;
            case "time": advance(Long.parseLong(words[1])); break;
            case "heartbeat": ANSWERS.add(show(done(shard.consumerGroupHeartbeat(context("c"), heartbeat(words))))); break;
            case "streams": ANSWERS.add(StreamsGroupLines.show(done(shard.streamsGroupHeartbeat(context("c"),
                StreamsGroupLines.heartbeat(words))))); break;
            case "describe_streams": ANSWERS.add(StreamsGroupLines.described(shard, words[1])); break;
            case "describe": ANSWERS.add(show(shard.consumerGroupDescribe(List.of(words[1]), Long.MAX_VALUE).get(0))); break;
            case "list": ANSWERS.add(shard.listGroups(List.of(), List.of(), Long.MAX_VALUE).stream().map(group ->
                group.groupId() + "/" + group.protocolType() + "/" + group.groupState() + "/" + group.groupType())
                .sorted().toList().toString().replace(" ", "")); break;
            case "commit":
                ANSWERS.add(Errors.forCode(done(shard.commitOffset(context("c"), new OffsetCommitRequestData()
                    .setGroupId(words[1]).setMemberId(words[2]).setGenerationIdOrMemberEpoch(Integer.parseInt(words[3]))
                    .setTopics(List.of(new OffsetCommitRequestData.OffsetCommitRequestTopic().setName(words[4])
                        .setPartitions(List.of(new OffsetCommitRequestData.OffsetCommitRequestPartition()
                            .setPartitionIndex(Integer.parseInt(words[5])).setCommittedOffset(Long.parseLong(words[6]))
                            .setCommittedMetadata("")))))))
                    .topics().get(0).partitions().get(0).errorCode()).name());
                break;
            case "delete": ANSWERS.add(Errors.forCode(done(shard.deleteGroups(context("c"), List.of(words[1])))
                .find(words[1]).errorCode()).name()); break;
            case "join":
                try {
                    join(words);
                } catch (ApiException error) {
                    ANSWERS.add(words[1] + ":join/" + Errors.forException(error).name() + "//-1///false/");
                }
                break;
            case "sync":
                try {
                    sync(words);
                } catch (ApiException error) {
                    ANSWERS.add(words[1] + ":sync/" + Errors.forException(error).name() + "/");
                }
                break;
            case "beat": ANSWERS.add(Errors.forCode(done(shard.classicGroupHeartbeat(context("c"), new HeartbeatRequestData()
                .setGroupId(words[1]).setMemberId(words[2]).setGenerationId(Integer.parseInt(words[3]))
                .setGroupInstanceId(text(words[4])))).errorCode()).name()); break;
            case "leave":
                try {
                    leave(words);
                } catch (UnknownMemberIdException error) {
                    ANSWERS.add("NONE/UNKNOWN_MEMBER_ID"); // as the service says it
                }
                break;
            default: throw new IllegalArgumentException(words[0]);
        }
    }

    private static void leave(String[] words) {
        var answer = done(shard.classicGroupLeave(context("c"), new LeaveGroupRequestData().setGroupId(words[1])
            .setMembers(List.of(new LeaveGroupRequestData.MemberIdentity().setMemberId(words[2].equals("=") ? "" : words[2])
                .setGroupInstanceId(text(words[3]))))));
        ANSWERS.add(Errors.forCode(answer.errorCode()).name() + (answer.members().isEmpty() ? "" :
            "/" + Errors.forCode(answer.members().get(0).errorCode()).name()));
    }

    // heartbeat GROUP MEMBER EPOCH INSTANCE RACK TIMEOUT TOPICS REGEX ASSIGNOR OWNED; "-" for null, "=" for nothing

    private static ConsumerGroupHeartbeatRequestData heartbeat(String[] words) {
        var request = new ConsumerGroupHeartbeatRequestData().setGroupId(words[1]).setMemberId(words[2])
            .setMemberEpoch(Integer.parseInt(words[3])).setInstanceId(text(words[4])).setRackId(text(words[5]))
            .setRebalanceTimeoutMs(Integer.parseInt(words[6])).setSubscribedTopicRegex(text(words[8]))
            .setServerAssignor(text(words[9]));
        if (!words[7].equals("-"))
            request.setSubscribedTopicNames(words[7].equals("=") ? List.of() : List.of(words[7].split(",")));
        if (!words[10].equals("-")) {
            List<ConsumerGroupHeartbeatRequestData.TopicPartitions> owned = new ArrayList<>();
            places(words[10]).forEach((topic, partitions) -> owned.add(
                new ConsumerGroupHeartbeatRequestData.TopicPartitions().setTopicId(topic).setPartitions(partitions)));
            request.setTopicPartitions(owned);
        }
        return request;
    }

    private static Map<Uuid, List<Integer>> places(String word) {
        Map<Uuid, List<Integer>> found = new TreeMap<>();
        if (!word.equals("="))
            for (String each : word.split(","))
                found.computeIfAbsent(id(each.split("\\.")[0]), topic -> new ArrayList<>())
                    .add(Integer.parseInt(each.split("\\.")[1]));
        return found;
    }

    private static String show(ConsumerGroupHeartbeatResponseData answer) {
        if (answer.errorCode() != 0)
            return Errors.forCode(answer.errorCode()).name();
        List<String> assigned = new ArrayList<>();
        if (answer.assignment() != null)
            answer.assignment().topicPartitions().forEach(topic -> topic.partitions().forEach(partition ->
                assigned.add(topic.topicId().getLeastSignificantBits() + "." + partition)));
        return answer.memberId() + "/" + answer.memberEpoch() + "/" + answer.heartbeatIntervalMs() + "/"
            + (answer.assignment() == null ? "-" : "[" + String.join(",", assigned.stream().sorted().toList()) + "]");
    }

    private static String show(ConsumerGroupDescribeResponseData.DescribedGroup group) {
        if (group.errorCode() != 0)
            return Errors.forCode(group.errorCode()).name();
        return group.groupState() + "/" + group.groupEpoch() + "/" + group.assignmentEpoch() + "/" + group.assignorName()
            + "/" + String.join(",", group.members().stream().map(GroupCoordinatorLines::show).sorted().toList());
    }

    private static String show(ConsumerGroupDescribeResponseData.Member member) {
        return member.memberId() + ":" + member.instanceId() + ":" + member.rackId() + ":" + member.memberEpoch() + ":"
            + member.clientId() + ":" + member.clientHost() + ":" + String.join("+", member.subscribedTopicNames().stream()
                .sorted().toList()) + ":" + member.subscribedTopicRegex() + ":" + show(member.assignment()) + ":"
            + show(member.targetAssignment()) + ":" + member.memberType();
    }

    private static String show(ConsumerGroupDescribeResponseData.Assignment assignment) {
        List<String> places = new ArrayList<>();
        assignment.topicPartitions().forEach(topic -> topic.partitions().forEach(partition ->
            places.add(topic.topicName() + "." + partition)));
        return String.join("+", places.stream().sorted().toList());
    }

    // join TOKEN GROUP MEMBER INSTANCE SESSION REBALANCE NAME=HEX,NAME=HEX

    private static void join(String[] words) {
        var protocols = new JoinGroupRequestData.JoinGroupRequestProtocolCollection();
        for (String each : words[7].split(","))
            protocols.add(new JoinGroupRequestData.JoinGroupRequestProtocol().setName(each.split("=")[0])
                .setMetadata(HexFormat.of().parseHex(each.split("=")[1])));
        CompletableFuture<JoinGroupResponseData> future = new CompletableFuture<>();
        future.thenAccept(answer -> ANSWERS.add(words[1] + ":join/" + Errors.forCode(answer.errorCode()).name() + "/"
            + answer.memberId() + "/" + answer.generationId() + "/" + Objects.requireNonNullElse(answer.protocolName(), "") + "/" + answer.leader() + "/"
            + answer.skipAssignment() + "/" + String.join(",", answer.members().stream().map(member -> member.memberId()
                + "=" + HexFormat.of().formatHex(member.metadata())).sorted().toList())));
        var result = Release.join(shard, context("c"), new JoinGroupRequestData().setGroupId(words[2])
            .setMemberId(words[3].equals("=") ? "" : words[3]).setGroupInstanceId(text(words[4])).setProtocolType("consumer")
            .setSessionTimeoutMs(Integer.parseInt(words[5])).setRebalanceTimeoutMs(Integer.parseInt(words[6]))
            .setProtocols(protocols), future);
        done(result);
    }

    // sync TOKEN GROUP MEMBER INSTANCE GENERATION MEMBER=HEX,MEMBER=HEX

    private static void sync(String[] words) {
        List<SyncGroupRequestData.SyncGroupRequestAssignment> assignments = new ArrayList<>();
        if (!words[6].equals("="))
            for (String each : words[6].split(","))
                assignments.add(new SyncGroupRequestData.SyncGroupRequestAssignment().setMemberId(each.split("=")[0])
                    .setAssignment(HexFormat.of().parseHex(each.split("=")[1])));
        CompletableFuture<SyncGroupResponseData> future = new CompletableFuture<>();
        future.thenAccept(answer -> ANSWERS.add(words[1] + ":sync/" + Errors.forCode(answer.errorCode()).name() + "/"
            + HexFormat.of().formatHex(answer.assignment())));
        done(shard.classicGroupSync(context("c"), new SyncGroupRequestData().setGroupId(words[2]).setMemberId(words[3])
            .setGroupInstanceId(text(words[4])).setGenerationId(Integer.parseInt(words[5])).setAssignments(assignments)
            .setProtocolType("consumer"), future));
    }

    // What surrounds a shard

    private static <T> T done(CoordinatorResult<T, CoordinatorRecord> result) {
        for (CoordinatorRecord record : result.records()) {
            byte[] value = SERDE.serializeValue(record);
            RECORDS.add(HexFormat.of().formatHex(SERDE.serializeKey(record)) + ":"
                + (value == null ? "" : HexFormat.of().formatHex(value)));
            if (result.replayRecords())
                shard.replay(LOG.size(), -1L, (short) -1, record);
            LOG.add(record);
        }
        if (result.appendFuture() != null)
            result.appendFuture().complete(null);
        return result.response();
    }

    private static void restart(String[] words) {
        Map<String, String> asked = new HashMap<>();
        for (int index = 2; index < words.length; index++)
            asked.put(words[index].split("=")[0], words[index].split("=")[1]);
        settings = asked;
        start = Long.parseLong(words[1]);
        now = 0;
        metadataOffset = 0;
        LOG.clear();
        MetadataDelta delta = new MetadataDelta.Builder().setImage(MetadataImage.EMPTY).build();
        for (int broker = 1; broker <= 3; broker++)
            delta.replay(new RegisterBrokerRecord().setBrokerId(broker).setBrokerEpoch(broker).setIncarnationId(new Uuid(2, broker))
                .setFenced(false).setRack(broker == 3 ? null : "rack" + broker));
        image = delta.apply(new MetadataProvenance(metadataOffset++, 1, 0, true));
        load();
    }

    private static void load() {
        TIMERS.clear();
        TASKS.clear();
        SCHEDULED.clear();
        Map<String, String> all = new HashMap<>(settings);
        all.putAll(Map.of("node.id", "1", "process.roles", "broker", "controller.listener.names", "C"));
        AbstractConfig config = new AbstractConfig(AbstractKafkaConfig.CONFIG_DEF, all, false);
        GroupCoordinatorConfig groups = new GroupCoordinatorConfig(config);
        ShareGroupConfig shares = new ShareGroupConfig(config);
        shard = (GroupCoordinatorShard) Release.builder(groups, shares).withAuthorizerPlugin(Optional.empty())
            .withTime(clock()).withTimer(new Timers()).withExecutor(new Executor())
            .withCoordinatorMetrics(new GroupCoordinatorMetrics())
            .withTopicPartition(new TopicPartition("__consumer_offsets", 0)).build();
        StreamsGroupLines.dealInTurn(shard);
        for (int offset = 0; offset < LOG.size(); offset++)
            shard.replay(offset, -1L, (short) -1, LOG.get(offset));
        shard.onLoaded(new KRaftCoordinatorMetadataImage(image));
    }

    private static void change(String name, Uuid topic, int count) {
        MetadataDelta delta = new MetadataDelta.Builder().setImage(image).build();
        if (name == null) {
            delta.replay(new RemoveTopicRecord().setTopicId(topic));
        } else {
            int before = 0;
            if (image.topics().getTopic(topic) == null)
                delta.replay(new TopicRecord().setName(name).setTopicId(topic));
            else
                before = image.topics().getTopic(topic).partitions().size();
            for (int partition = before; partition < count; partition++)
                delta.replay(new PartitionRecord().setTopicId(topic).setPartitionId(partition).setLeader(1 + partition % 3)
                    .setLeaderEpoch(0).setPartitionEpoch(0).setReplicas(List.of(1 + partition % 3, 1 + (partition + 1) % 3))
                    .setIsr(List.of(1 + partition % 3)).setDirectories(List.of(new Uuid(3, 1), new Uuid(3, 1))));
        }
        image = delta.apply(new MetadataProvenance(metadataOffset++, 1, 0, true));
        shard.onMetadataUpdate(new KRaftCoordinatorMetadataDelta(delta), new KRaftCoordinatorMetadataImage(image));
    }

    private static void advance(long milliseconds) {
        long end = now + milliseconds;
        while (true) {
            Optional<Timer> next = TIMERS.values().stream().min(
                Comparator.comparingLong(Timer::deadline).thenComparingLong(Timer::sequence));
            if (next.isEmpty() || next.get().deadline() > end)
                break;
            now = Math.max(now, next.get().deadline());
            TIMERS.remove(next.get().key());
            done(next.get().work().generateRecords());
            while (!TASKS.isEmpty())
                TASKS.pop().run();
        }
        now = end;
    }

    private static final class Timers implements CoordinatorTimer<CoordinatorRecord> {
        @Override
        public void schedule(String key, long delay, TimeUnit unit, boolean retry, TimeoutOperation<CoordinatorRecord> work) {
            TIMERS.put(key, new Timer(key, now + unit.toMillis(delay), sequence++, work));
        }

        @Override
        public void schedule(String key, long delay, TimeUnit unit, boolean retry, long backoff,
                TimeoutOperation<CoordinatorRecord> work) {
            schedule(key, delay, unit, retry, work);
        }

        @Override
        public void scheduleIfAbsent(String key, long delay, TimeUnit unit, boolean retry,
                TimeoutOperation<CoordinatorRecord> work) {
            if (!TIMERS.containsKey(key))
                schedule(key, delay, unit, retry, work);
        }

        @Override
        public void cancel(String key) {
            TIMERS.remove(key);
        }

        @Override
        public boolean isScheduled(String key) {
            return TIMERS.containsKey(key);
        }
    }

    private static final class Executor implements CoordinatorExecutor<CoordinatorRecord> {
        @Override
        public <R> boolean schedule(String key, TaskRunnable<R> task, TaskOperation<CoordinatorRecord, R> operation) {
            if (!SCHEDULED.add(key))
                return false;
            TASKS.add(() -> {
                R result = null;
                Throwable failure = null;
                try {
                    result = task.run();
                } catch (Throwable error) {
                    failure = error;
                }
                if (SCHEDULED.remove(key))
                    done(operation.onComplete(result, failure));
            });
            return true;
        }

        @Override
        public boolean isScheduled(String key) {
            return SCHEDULED.contains(key);
        }

        @Override
        public void cancel(String key) {
            SCHEDULED.remove(key);
        }
    }

    private static String text(String word) {
        return word.equals("-") ? null : word.equals("=") ? "" : word;
    }

    private static Uuid id(String number) {
        return new Uuid(0, Long.parseLong(number));
    }

    private static Time clock() {
        return (Time) Proxy.newProxyInstance(Time.class.getClassLoader(), new Class<?>[] {Time.class}, (proxy, method, values) ->
            switch (method.getName()) {
                case "milliseconds", "hiResClockMs" -> start + now;
                case "nanoseconds" -> (start + now) * 1_000_000;
                default -> throw new UnsupportedOperationException(method.getName());
            });
    }

    private static AuthorizableRequestContext context(String client) {
        return (AuthorizableRequestContext) Proxy.newProxyInstance(AuthorizableRequestContext.class.getClassLoader(),
            new Class<?>[] {AuthorizableRequestContext.class}, (proxy, method, values) -> switch (method.getName()) {
                case "clientId" -> client;
                case "clientAddress" -> InetAddress.getByAddress(new byte[] {127, 0, 0, 1});
                case "requestVersion" -> 9;
                default -> throw new UnsupportedOperationException(method.getName());
            });
    }
}
