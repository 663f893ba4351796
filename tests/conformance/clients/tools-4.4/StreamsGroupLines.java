package org.apache.kafka.coordinator.group;

import java.lang.reflect.Field;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.common.message.StreamsGroupDescribeResponseData;
import org.apache.kafka.common.message.StreamsGroupHeartbeatRequestData;
import org.apache.kafka.common.message.StreamsGroupHeartbeatResponseData;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.coordinator.group.generated.StreamsGroupTopologyValue;
import org.apache.kafka.coordinator.group.streams.StreamsGroupHeartbeatResult;
import org.apache.kafka.coordinator.group.api.streams.assignor.GroupAssignment;
import org.apache.kafka.coordinator.group.api.streams.assignor.GroupSpec;
import org.apache.kafka.coordinator.group.api.streams.assignor.MemberAssignment;
import org.apache.kafka.coordinator.group.api.streams.assignor.TaskAssignor;
import org.apache.kafka.coordinator.group.api.streams.assignor.TaskAssignorException;
import org.apache.kafka.coordinator.group.api.streams.assignor.TopologyDescriber;

/** What GroupCoordinatorLines is asked of streams groups, and its answers. */
final class StreamsGroupLines {
    private StreamsGroupLines() { }

    /** Deals tasks in turn, so that nothing is left to the order of hash maps; the walk has the same in Python. */
    private static final class InTurn implements TaskAssignor {
        @Override
        public String name() {
            return "sticky";
        }

        @Override
        public GroupAssignment assign(GroupSpec spec, TopologyDescriber topology) {
            List<String> names = new ArrayList<>(new TreeSet<>(spec.memberIds()));
            int standbys = spec.configs().numStandbyReplicas();
            Map<String, Map<String, Set<Integer>>> active = new HashMap<>(), standby = new HashMap<>();
            for (String name : names) {
                active.put(name, new HashMap<>());
                standby.put(name, new HashMap<>());
            }
            int place = 0;
            for (String subtopology : new TreeSet<>(topology.subtopologies()))
                for (int number = 0; number < topology.maxNumInputPartitions(subtopology); number++, place++) {
                    if (names.isEmpty())
                        throw new TaskAssignorException("there is nobody");
                    String first = names.get(place % names.size());
                    give(active.get(first), subtopology, number);
                    Set<String> taken = new HashSet<>(Set.of(spec.memberMetadata(first).processId()));
                    int given = 0;
                    for (int offset = 1; offset < names.size() && given < standbys && topology.isStateful(subtopology); offset++) {
                        String name = names.get((place + offset) % names.size());
                        if (!taken.add(spec.memberMetadata(name).processId()))
                            continue;
                        give(standby.get(name), subtopology, number);
                        given++;
                    }
                }
            Map<String, MemberAssignment> dealt = new HashMap<>();
            for (String name : names)
                dealt.put(name, new MemberAssignment(active.get(name), standby.get(name)));
            return new GroupAssignment(dealt);
        }

        private static void give(Map<String, Set<Integer>> tasks, String subtopology, int number) {
            tasks.computeIfAbsent(subtopology, each -> new HashSet<>()).add(number);
        }
    }

    static void dealInTurn(GroupCoordinatorShard shard) {
        try {
            Field manager = GroupCoordinatorShard.class.getDeclaredField("groupMetadataManager");
            manager.setAccessible(true);
            Field assignor = GroupMetadataManager.class.getDeclaredField("defaultStreamsGroupAssignor");
            assignor.setAccessible(true);
            assignor.set(manager.get(shard), new InTurn());
        } catch (ReflectiveOperationException error) {
            throw new IllegalStateException(error);
        }
    }

    // streams GROUP MEMBER EPOCH ENDPOINT-EPOCH TIMEOUT RACK PROCESS ENDPOINT TAGS TOPOLOGY ACTIVE STANDBY WARMUP SHUTDOWN
    //     INSTANCE OFFSETS END-OFFSETS

    static StreamsGroupHeartbeatRequestData heartbeat(String[] words) {
        var request = new StreamsGroupHeartbeatRequestData().setGroupId(words[1]).setMemberId(words[2])
            .setMemberEpoch(Integer.parseInt(words[3])).setEndpointInformationEpoch(Integer.parseInt(words[4]))
            .setRebalanceTimeoutMs(Integer.parseInt(words[5])).setRackId(text(words[6])).setProcessId(text(words[7]))
            .setActiveTasks(tasks(words[11])).setStandbyTasks(tasks(words[12])).setWarmupTasks(tasks(words[13]))
            .setShutdownApplication(words[14].equals("1")).setInstanceId(text(words[15]))
            .setTaskOffsets(offsets(words[16])).setTaskEndOffsets(offsets(words[17]));
        if (!words[8].equals("-"))
            request.setUserEndpoint(new StreamsGroupHeartbeatRequestData.Endpoint().setHost(words[8].split(":")[0])
                .setPort(Integer.parseInt(words[8].split(":")[1])));
        if (!words[9].equals("-")) {
            request.setClientTags(new ArrayList<>());
            for (String each : words[9].equals("=") ? new String[0] : words[9].split(","))
                request.clientTags().add(new StreamsGroupHeartbeatRequestData.KeyValue().setKey(each.split("=")[0])
                    .setValue(each.split("=")[1]));
        }
        if (!words[10].equals("-"))
            request.setTopology(topology(words[10]));
        return request;
    }

    private static String text(String word) {
        return word.equals("-") ? null : word;
    }

    private static StreamsGroupHeartbeatRequestData.Topology topology(String hex) {
        ByteBuffer record = ByteBuffer.wrap(HexFormat.of().parseHex(hex));
        short version = record.getShort();
        var value = new StreamsGroupTopologyValue(new ByteBufferAccessor(record), version);
        var found = new StreamsGroupHeartbeatRequestData.Topology().setEpoch(value.epoch());
        for (var each : value.subtopologies()) {
            List<StreamsGroupHeartbeatRequestData.CopartitionGroup> groups = new ArrayList<>();
            for (var group : each.copartitionGroups())
                groups.add(new StreamsGroupHeartbeatRequestData.CopartitionGroup().setSourceTopics(group.sourceTopics())
                    .setSourceTopicRegex(group.sourceTopicRegex()).setRepartitionSourceTopics(group.repartitionSourceTopics()));
            found.subtopologies().add(new StreamsGroupHeartbeatRequestData.Subtopology().setSubtopologyId(each.subtopologyId())
                .setSourceTopics(each.sourceTopics()).setSourceTopicRegex(each.sourceTopicRegex())
                .setStateChangelogTopics(topics(each.stateChangelogTopics())).setRepartitionSinkTopics(each.repartitionSinkTopics())
                .setRepartitionSourceTopics(topics(each.repartitionSourceTopics())).setCopartitionGroups(groups));
        }
        return found;
    }

    private static List<StreamsGroupHeartbeatRequestData.TopicInfo> topics(List<StreamsGroupTopologyValue.TopicInfo> topics) {
        List<StreamsGroupHeartbeatRequestData.TopicInfo> found = new ArrayList<>();
        for (var each : topics) {
            List<StreamsGroupHeartbeatRequestData.KeyValue> configs = new ArrayList<>();
            for (var config : each.topicConfigs())
                configs.add(new StreamsGroupHeartbeatRequestData.KeyValue().setKey(config.key()).setValue(config.value()));
            found.add(new StreamsGroupHeartbeatRequestData.TopicInfo().setName(each.name()).setPartitions(each.partitions())
                .setReplicationFactor(each.replicationFactor()).setTopicConfigs(configs));
        }
        return found;
    }

    private static List<StreamsGroupHeartbeatRequestData.TaskIds> tasks(String word) {
        if (word.equals("-"))
            return null;
        Map<String, List<Integer>> rows = new TreeMap<>();
        for (String each : word.equals("=") ? new String[0] : word.split(","))
            rows.computeIfAbsent(each.split("\\.")[0], name -> new ArrayList<>()).add(Integer.parseInt(each.split("\\.")[1]));
        List<StreamsGroupHeartbeatRequestData.TaskIds> found = new ArrayList<>();
        rows.forEach((name, numbers) -> found.add(
            new StreamsGroupHeartbeatRequestData.TaskIds().setSubtopologyId(name).setPartitions(numbers)));
        return found;
    }

    private static List<StreamsGroupHeartbeatRequestData.TaskOffset> offsets(String word) {
        if (word.equals("-"))
            return null;
        List<StreamsGroupHeartbeatRequestData.TaskOffset> found = new ArrayList<>();
        for (String each : word.equals("=") ? new String[0] : word.split(",")) {
            String[] parts = each.split("\\.");
            found.add(new StreamsGroupHeartbeatRequestData.TaskOffset().setSubtopologyId(parts[0])
                .setPartition(Integer.parseInt(parts[1])).setOffset(Long.parseLong(parts[2])));
        }
        return found;
    }

    static String show(StreamsGroupHeartbeatResult result) {
        var answer = result.data();
        List<String> statuses = new ArrayList<>();
        answer.status().forEach(each -> statuses.add(each.statusCode() + "=" + each.statusDetail().replace(' ', '_')));
        List<String> creatable = new ArrayList<>();
        result.creatableTopics().forEach((name, topic) -> creatable.add(name + ":" + topic.numPartitions() + ":"
            + topic.replicationFactor() + ":" + topic.configs().stream().map(each -> each.name() + "=" + each.value()).sorted().toList()));
        return String.join("/", Errors.forCode(answer.errorCode()).name(), answer.memberId(), "" + answer.memberEpoch(),
            "" + answer.heartbeatIntervalMs(), "" + answer.acceptableRecoveryLag(), "" + answer.taskOffsetIntervalMs(),
            sorted(statuses), show(answer.activeTasks()), show(answer.standbyTasks()), show(answer.warmupTasks()),
            "" + answer.endpointInformationEpoch(), endpoints(answer.partitionsByUserEndpoint()), sorted(creatable)).replace(' ', '_');
    }

    private static String sorted(List<String> found) {
        return "[" + String.join("+", found.stream().sorted().toList()) + "]";
    }

    private static String show(List<StreamsGroupHeartbeatResponseData.TaskIds> rows) {
        if (rows == null)
            return "-";
        List<String> found = new ArrayList<>();
        rows.forEach(row -> row.partitions().forEach(number -> found.add(row.subtopologyId() + "." + number)));
        return sorted(found);
    }

    private static String endpoints(List<StreamsGroupHeartbeatResponseData.EndpointToPartitions> rows) {
        if (rows == null)
            return "-";
        List<String> found = new ArrayList<>();
        for (var row : rows)
            found.add(row.userEndpoint().host() + ":" + row.userEndpoint().port() + ":" + partitions(row.activePartitions())
                + partitions(row.standbyPartitions()));
        return sorted(found);
    }

    private static String partitions(List<StreamsGroupHeartbeatResponseData.TopicPartition> rows) {
        List<String> found = new ArrayList<>();
        rows.forEach(row -> row.partitions().forEach(number -> found.add(row.topic() + "." + number)));
        return sorted(found);
    }

    static String described(GroupCoordinatorShard shard, String name) {
        var group = shard.streamsGroupDescribe(List.of(name), Long.MAX_VALUE).describedGroups().get(0);
        if (group.errorCode() != 0)
            return Errors.forCode(group.errorCode()).name();
        List<String> subtopologies = new ArrayList<>();
        for (var each : group.topology().subtopologies())
            subtopologies.add(each.subtopologyId() + ":" + new TreeSet<>(each.sourceTopics()) + new TreeSet<>(each.repartitionSinkTopics())
                + described(each.repartitionSourceTopics()) + described(each.stateChangelogTopics()));
        return String.join("/", group.groupState(), "" + group.groupEpoch(), "" + group.assignmentEpoch(),
            "" + group.topology().epoch(), sorted(subtopologies),
            sorted(group.members().stream().map(StreamsGroupLines::show).toList())).replace(' ', '_');
    }

    private static String described(List<StreamsGroupDescribeResponseData.TopicInfo> topics) {
        List<String> found = new ArrayList<>();
        topics.forEach(each -> found.add(each.name() + ":" + each.partitions() + ":" + each.replicationFactor()));
        return sorted(found);
    }

    private static String show(StreamsGroupDescribeResponseData.Member member) {
        List<String> tags = new ArrayList<>();
        member.clientTags().forEach(each -> tags.add(each.key() + "=" + each.value()));
        return String.join(":", member.memberId(), "" + member.memberEpoch(), "" + member.rackId(), member.clientId(),
            member.clientHost(), "" + member.topologyEpoch(), member.processId(),
            member.userEndpoint() == null ? "-" : member.userEndpoint().host() + ":" + member.userEndpoint().port(),
            sorted(tags), show(member.assignment()), show(member.targetAssignment()), "" + member.instanceId(),
            reported(member.taskOffsets()), reported(member.taskEndOffsets()));
    }

    private static String reported(List<StreamsGroupDescribeResponseData.TaskOffset> rows) {
        return sorted(rows.stream().map(each -> each.subtopologyId() + "." + each.partition() + "." + each.offset()).toList());
    }

    private static String show(StreamsGroupDescribeResponseData.Assignment assignment) {
        return held(assignment.activeTasks()) + held(assignment.standbyTasks()) + held(assignment.warmupTasks());
    }

    private static String held(List<StreamsGroupDescribeResponseData.TaskIds> rows) {
        List<String> found = new ArrayList<>();
        rows.forEach(row -> row.partitions().forEach(number -> found.add(row.subtopologyId() + "." + number)));
        return sorted(found);
    }
}
