package org.apache.kafka.coordinator.group.streams;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.coordinator.common.runtime.CoordinatorMetadataDelta;
import org.apache.kafka.coordinator.common.runtime.CoordinatorMetadataImage;
import org.apache.kafka.coordinator.group.generated.StreamsGroupTopologyValue;
import org.apache.kafka.coordinator.group.streams.assignor.AssignmentConfigsImpl;
import org.apache.kafka.coordinator.group.streams.assignor.GroupSpecImpl;
import org.apache.kafka.coordinator.group.streams.assignor.MemberMetadataAndStateImpl;
import org.apache.kafka.coordinator.group.streams.assignor.StickyTaskAssignor;
import org.apache.kafka.coordinator.group.api.streams.assignor.TopologyDescriber;
import org.apache.kafka.coordinator.group.streams.topics.ConfiguredInternalTopic;
import org.apache.kafka.coordinator.group.streams.topics.InternalTopicManager;
import org.slf4j.LoggerFactory;

/**
 * Kafka's own task assignor and configuration of topologies, asked line by line:
 * assign STANDBYS SUBTOPOLOGY:TASKS:STATEFUL,... MEMBER/PROCESS/SUBTOPOLOGY.PARTITION,.../(the same of standbys) ...
 * topology HEX-OF-THE-RECORD TOPIC:PARTITIONS,...
 */
public class StreamsLines {
    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String answer;
            try {
                String[] words = line.split(" ", -1);
                answer = words[0].equals("assign") ? assign(words) : topology(words);
            } catch (Throwable error) {
                answer = "thrown " + error.getClass().getSimpleName() + " " + error.getMessage();
            }
            System.out.println("answer " + answer + "|");
            System.out.flush();
        }
    }

    private static String assign(String[] words) {
        Map<String, String[]> sizes = new TreeMap<>();
        for (String each : words[2].split(","))
            sizes.put(each.split(":")[0], each.split(":"));
        Map<String, MemberMetadataAndStateImpl> members = new HashMap<>();
        for (int index = 3; index < words.length; index++) {
            String[] parts = words[index].split("/", -1);
            members.put(parts[0], new MemberMetadataAndStateImpl(
                Optional.empty(), Optional.empty(), parts[1], Map.of(), tasks(parts[2]), tasks(parts[3]), Map.of(),
                Map.of(), Map.of()));
        }
        var configs = AssignmentConfigsImpl.fromMap(Map.of("num.standby.replicas", words[1]));
        var assigned = new StickyTaskAssignor().assign(new GroupSpecImpl(members, configs), new TopologyDescriber() {
            @Override
            public List<String> subtopologies() {
                return List.copyOf(sizes.keySet());
            }

            @Override
            public int maxNumInputPartitions(String subtopology) {
                return Integer.parseInt(sizes.get(subtopology)[1]);
            }

            @Override
            public boolean isStateful(String subtopology) {
                return sizes.get(subtopology)[2].equals("1");
            }
        }).members();
        List<String> answer = new ArrayList<>();
        for (String member : members.keySet())
            answer.add(String.join("/", member, listed(assigned.get(member).activeTasks()),
                listed(assigned.get(member).standbyTasks())));
        return String.join(" ", answer);
    }

    private static Map<String, Set<Integer>> tasks(String listed) {
        Map<String, Set<Integer>> found = new HashMap<>();
        for (String each : listed.isEmpty() ? new String[0] : listed.split(",")) {
            String[] task = each.split("\\.");
            found.computeIfAbsent(task[0], __ -> new HashSet<>()).add(Integer.parseInt(task[1]));
        }
        return found;
    }

    private static String listed(Map<String, Set<Integer>> tasks) {
        List<String> found = new ArrayList<>();
        new TreeMap<>(tasks).forEach((name, numbers) -> new TreeSet<>(numbers).forEach(each -> found.add(name + "." + each)));
        return String.join(",", found);
    }

    private static String topology(String[] words) {
        ByteBuffer record = ByteBuffer.wrap(HexFormat.of().parseHex(words[1]));
        short version = record.getShort();
        var topology = StreamsTopology.fromRecord(new StreamsGroupTopologyValue(new ByteBufferAccessor(record), version));
        Map<String, Integer> partitions = new HashMap<>();
        for (String each : words[2].isEmpty() ? new String[0] : words[2].split(","))
            partitions.put(each.split(":")[0], Integer.parseInt(each.split(":")[1]));
        var log = LoggerFactory.getLogger(StreamsLines.class);
        var configured = InternalTopicManager.configureTopics(log, "g", "m", 1, topology, new Image(partitions), Time.SYSTEM);
        List<String> found = new ArrayList<>();
        configured.subtopologies().ifPresent(each -> each.forEach((name, subtopology) -> found.add(String.join(" ",
            name, "" + subtopology.numberOfTasks(), "" + new TreeSet<>(subtopology.sourceTopics()),
            topics(subtopology.repartitionSourceTopics()), "" + new TreeSet<>(subtopology.repartitionSinkTopics()),
            topics(subtopology.stateChangelogTopics())))));
        List<String> missing = new ArrayList<>();
        new TreeMap<>(configured.internalTopicsToBeCreated()).forEach((name, topic) -> missing.add(
            name + ":" + topic.numPartitions() + ":" + topic.replicationFactor()));
        var error = configured.topicConfigurationException();
        return String.join("; ", error.map(each -> each.status().name()).orElse("READY"),
            configured.subtopologies().isPresent() ? "" + found : "none", "" + missing,
            error.map(Throwable::getMessage).orElse(""));
    }

    private static String topics(Map<String, ConfiguredInternalTopic> topics) {
        List<String> found = new ArrayList<>();
        new TreeMap<>(topics).forEach((name, topic) -> found.add(
            name + ":" + topic.numberOfPartitions() + ":" + topic.replicationFactor().orElse((short) -1)
                + ":" + new TreeMap<>(topic.topicConfigs())));
        return "" + found;
    }

    private record Image(Map<String, Integer> partitions) implements CoordinatorMetadataImage {
        @Override
        public Set<Uuid> topicIds() {
            return Set.of();
        }

        @Override
        public Set<String> topicNames() {
            return partitions.keySet();
        }

        @Override
        public Optional<TopicMetadata> topicMetadata(String name) {
            return Optional.ofNullable(partitions.get(name)).map(count -> new TopicMetadata() {
                @Override
                public String name() {
                    return name;
                }

                @Override
                public Uuid id() {
                    return Uuid.ONE_UUID;
                }

                @Override
                public int partitionCount() {
                    return count;
                }

                @Override
                public List<String> partitionRacks(int partition) {
                    return List.of();
                }
            });
        }

        @Override
        public Optional<TopicMetadata> topicMetadata(Uuid id) {
            return Optional.empty();
        }

        @Override
        public CoordinatorMetadataDelta emptyDelta() {
            return CoordinatorMetadataDelta.EMPTY;
        }

        @Override
        public long version() {
            return 1;
        }

        @Override
        public boolean isEmpty() {
            return partitions.isEmpty();
        }
    }
}
