package org.apache.kafka.coordinator.share;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Proxy;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.AbstractConfig;
import org.apache.kafka.common.message.DeleteShareGroupStateRequestData;
import org.apache.kafka.common.message.InitializeShareGroupStateRequestData;
import org.apache.kafka.common.message.ReadShareGroupStateRequestData;
import org.apache.kafka.common.message.ReadShareGroupStateResponseData;
import org.apache.kafka.common.message.ReadShareGroupStateSummaryRequestData;
import org.apache.kafka.common.message.ReadShareGroupStateSummaryResponseData;
import org.apache.kafka.common.message.WriteShareGroupStateRequestData;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.utils.internals.LogContext;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.coordinator.common.runtime.CoordinatorMetadataImage;
import org.apache.kafka.coordinator.common.runtime.CoordinatorRecord;
import org.apache.kafka.coordinator.common.runtime.CoordinatorResult;
import org.apache.kafka.coordinator.share.metrics.ShareCoordinatorMetrics;
import org.apache.kafka.server.config.AbstractKafkaConfig;
import org.apache.kafka.server.share.SharePartitionKey;
import org.apache.kafka.timeline.SnapshotRegistry;

/** Kafka's own ShareCoordinatorShard, asked line by line: what Ottla's makes of the same is compared with it. */
public class ShareCoordinatorLines {
    private static final int PARTITIONS = 3;
    private static final ShareCoordinatorRecordSerde SERDE = new ShareCoordinatorRecordSerde();
    private static final List<String> RECORDS = new ArrayList<>();
    private static final Uuid TOPIC = new Uuid(1, 1);
    private static long now;
    private static long offset;
    private static ShareCoordinatorShard shard;

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String answer;
            try {
                answer = run(line.split(" "));
            } catch (Throwable error) {
                answer = "thrown " + error;
            }
            System.out.println("answer " + answer + "|" + String.join(" ", RECORDS));
            System.out.flush();
            RECORDS.clear();
        }
    }

    private static String run(String[] words) {
        long[] numbers = new long[words.length];
        for (int index = 3; index < words.length && !words[index].contains(","); index++)
            numbers[index] = Long.parseLong(words[index]);
        Uuid topic = words.length > 2 ? new Uuid(1, Long.parseLong(words[2])) : TOPIC;
        int partition = (int) (words.length > 3 ? numbers[3] : 0);
        switch (words[0]) {
            case "new": start(words[1]); return "ok";
            case "time": now = Long.parseLong(words[1]); return "ok";
            case "place": return String.valueOf(Utils.abs(
                SharePartitionKey.asCoordinatorKey(words[1], topic, partition).hashCode()) % 50);
            case "cold": done(shard.snapshotColdPartitions()); return "ok";
            case "redundant": return shard.lastRedundantOffset().response().map(String::valueOf).orElse("none");
            case "initialize":
                var initialized = done(shard.initializeState(new InitializeShareGroupStateRequestData()
                    .setGroupId(words[1]).setTopics(List.of(
                        new InitializeShareGroupStateRequestData.InitializeStateData().setTopicId(topic).setPartitions(
                            List.of(new InitializeShareGroupStateRequestData.PartitionData().setPartition(partition)
                                .setStateEpoch((int) numbers[4]).setStartOffset(numbers[5])))))))
                    .results().get(0).partitions().get(0);
                return error(initialized.errorCode(), initialized.errorMessage());
            case "delete":
                var deleted = done(shard.deleteState(new DeleteShareGroupStateRequestData().setGroupId(words[1])
                    .setTopics(List.of(new DeleteShareGroupStateRequestData.DeleteStateData().setTopicId(topic)
                        .setPartitions(List.of(new DeleteShareGroupStateRequestData.PartitionData()
                            .setPartition(partition))))))).results().get(0).partitions().get(0);
                return error(deleted.errorCode(), deleted.errorMessage());
            case "read":
                var read = done(shard.readStateAndMaybeUpdateLeaderEpoch(new ReadShareGroupStateRequestData()
                    .setGroupId(words[1]).setTopics(List.of(new ReadShareGroupStateRequestData.ReadStateData()
                        .setTopicId(topic).setPartitions(List.of(new ReadShareGroupStateRequestData.PartitionData()
                            .setPartition(partition).setLeaderEpoch((int) numbers[4]))))))).results().get(0)
                    .partitions().get(0);
                StringBuilder text = new StringBuilder(error(read.errorCode(), read.errorMessage()));
                if (read.errorCode() == 0) {
                    text.append(" ").append(read.stateEpoch()).append(" ").append(read.startOffset());
                    for (ReadShareGroupStateResponseData.StateBatch each : read.stateBatches())
                        text.append(" ").append(each.firstOffset()).append(",").append(each.lastOffset()).append(",")
                            .append(each.deliveryState()).append(",").append(each.deliveryCount());
                }
                return text.toString();
            case "summary":
                ReadShareGroupStateSummaryResponseData.PartitionResult found = shard.readStateSummary(
                    new ReadShareGroupStateSummaryRequestData().setGroupId(words[1]).setTopics(List.of(
                        new ReadShareGroupStateSummaryRequestData.ReadStateSummaryData().setTopicId(topic)
                            .setPartitions(List.of(new ReadShareGroupStateSummaryRequestData.PartitionData()
                                .setPartition(partition)))))).response().results().get(0).partitions().get(0);
                return error(found.errorCode(), found.errorMessage()) + (found.errorCode() != 0 ? "" :
                    " " + found.stateEpoch() + " " + found.leaderEpoch() + " " + found.startOffset()
                        + " " + found.deliveryCompleteCount());
            case "write":
                var written = done(shard.writeState(new WriteShareGroupStateRequestData().setGroupId(words[1])
                    .setTopics(List.of(new WriteShareGroupStateRequestData.WriteStateData().setTopicId(topic)
                        .setPartitions(List.of(new WriteShareGroupStateRequestData.PartitionData()
                            .setPartition(partition).setStateEpoch((int) numbers[4]).setLeaderEpoch((int) numbers[5])
                            .setStartOffset(numbers[6]).setDeliveryCompleteCount((int) numbers[7])
                            .setStateBatches(batches(words)))))))).results().get(0).partitions().get(0);
                return error(written.errorCode(), written.errorMessage());
            default: throw new IllegalArgumentException(words[0]);
        }
    }

    private static List<WriteShareGroupStateRequestData.StateBatch> batches(String[] words) {
        List<WriteShareGroupStateRequestData.StateBatch> batches = new ArrayList<>();
        for (int index = 8; index < words.length; index++) {
            String[] parts = words[index].split(",");
            batches.add(new WriteShareGroupStateRequestData.StateBatch().setFirstOffset(Long.parseLong(parts[0]))
                .setLastOffset(Long.parseLong(parts[1])).setDeliveryState(Byte.parseByte(parts[2]))
                .setDeliveryCount(Short.parseShort(parts[3])));
        }
        return batches;
    }

    private static String error(short code, String message) {
        return Errors.forCode(code).name() + (code == 0 ? "" : " " + message);
    }

    private static <T> T done(CoordinatorResult<T, CoordinatorRecord> result) {
        for (CoordinatorRecord record : result.records()) {
            byte[] value = SERDE.serializeValue(record);
            RECORDS.add(HexFormat.of().formatHex(SERDE.serializeKey(record)) + ":"
                + (value == null ? "" : HexFormat.of().formatHex(value)));
            shard.replay(offset++, -1L, (short) -1, record);
        }
        return result.response();
    }

    private static void start(String updatesPerSnapshot) {
        now = 0;
        offset = 0;
        Map<String, String> settings = Map.of("node.id", "1", "process.roles", "broker",
            "controller.listener.names", "C",
            ShareCoordinatorConfig.SNAPSHOT_UPDATE_RECORDS_PER_SNAPSHOT_CONFIG, updatesPerSnapshot);
        shard = new ShareCoordinatorShard.Builder(
            new ShareCoordinatorConfig(new AbstractConfig(AbstractKafkaConfig.CONFIG_DEF, settings, false)))
            .withLogContext(new LogContext()).withSnapshotRegistry(new SnapshotRegistry(new LogContext()))
            .withTime(port(Time.class)).withCoordinatorMetrics(new ShareCoordinatorMetrics())
            .withTopicPartition(new TopicPartition("__share_group_state", 0)).build();
        shard.onLoaded(port(CoordinatorMetadataImage.class));
    }

    @SuppressWarnings("unchecked")
    private static <T> T port(Class<T> type) {
        return (T) Proxy.newProxyInstance(type.getClassLoader(), new Class<?>[] {type}, (proxy, method, values) ->
            switch (method.getName()) {
                case "milliseconds", "hiResClockMs" -> now;
                case "topicMetadata" -> TOPIC.equals(values[0])
                    ? Optional.of(port(CoordinatorMetadataImage.TopicMetadata.class)) : Optional.empty();
                case "partitionCount" -> PARTITIONS;
                case "name" -> "t";
                default -> throw new UnsupportedOperationException(method.getName());
            });
    }
}
