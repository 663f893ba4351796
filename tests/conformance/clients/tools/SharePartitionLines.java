package kafka.server.share;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.OptionalLong;
import java.util.concurrent.CompletableFuture;
import org.apache.kafka.clients.consumer.internals.ShareAcquireMode;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.config.AbstractConfig;
import org.apache.kafka.common.message.FetchResponseData;
import org.apache.kafka.common.message.ReadShareGroupStateResponseData;
import org.apache.kafka.common.message.ShareFetchResponseData.AcquiredRecords;
import org.apache.kafka.common.message.WriteShareGroupStateResponseData;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.coordinator.group.GroupConfigManager;
import org.apache.kafka.coordinator.group.GroupCoordinatorConfig;
import org.apache.kafka.coordinator.group.modern.share.ShareGroupConfig;
import org.apache.kafka.server.config.AbstractKafkaConfig;
import org.apache.kafka.server.share.acknowledge.ShareAcknowledgementBatch;
import org.apache.kafka.server.share.persister.PartitionStateBatchData;
import org.apache.kafka.server.share.persister.Persister;
import org.apache.kafka.server.share.persister.PersisterStateBatch;
import org.apache.kafka.server.share.persister.ReadShareGroupStateResult;
import org.apache.kafka.server.share.persister.WriteShareGroupStateParameters;
import org.apache.kafka.server.share.persister.WriteShareGroupStateResult;
import org.apache.kafka.server.storage.log.FetchIsolation;
import org.apache.kafka.server.storage.log.FetchPartitionData;
import org.apache.kafka.server.util.timer.Timer;
import org.apache.kafka.server.util.timer.TimerTask;
import org.apache.kafka.server.util.timer.TimerTaskEntry;

/** Kafka's own SharePartition, asked line by line: what the same calls make of Ottla's is compared with it. */
public class SharePartitionLines {
    private static final Uuid TOPIC = Uuid.randomUuid();
    private static long now = 0;
    private static final List<Long> ENDS = new ArrayList<>();
    private static final List<TimerTask> TASKS = new ArrayList<>();
    private static final ArrayDeque<CompletableFuture<WriteShareGroupStateResult>> WRITES = new ArrayDeque<>();
    private static final List<String> EVENTS = new ArrayList<>();
    private static ReadShareGroupStateResult loaded;
    private static SharePartition partition;

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String answer;
            try {
                answer = run(line.split(" "));
            } catch (Throwable error) {
                answer = "thrown " + error;
            }
            System.out.println("answer " + answer + "|" + String.join(" ", EVENTS));
            System.out.flush();
            EVENTS.clear();
        }
    }

    private static String run(String[] words) throws Exception {
        switch (words[0]) {
            case "load": load(words); return state();
            case "acquire": return acquire(words) + " " + state();
            case "acknowledge": return outcome(partition.acknowledge(words[1], acknowledgements(words))) + " " + state();
            case "release": return outcome(partition.releaseAcquiredRecords(words[1])) + " " + state();
            case "start": partition.updateCacheAndOffsets(Long.parseLong(words[1])); return state();
            case "time": advance(Long.parseLong(words[1])); return state();
            case "written": written(words[1].equals("true")); return state();
            default: throw new IllegalArgumentException(words[0]);
        }
    }

    private static String state() {
        long next = partition.nextFetchOffset();
        return "next=" + next + " start=" + partition.startOffset() + " end=" + partition.endOffset()
            + " can=" + partition.canAcquireRecords() + " done=" + partition.deliveryCompleteCount();
    }

    private static void load(String[] words) {
        TASKS.clear();
        ENDS.clear();
        WRITES.clear();
        now = 0;
        List<ReadShareGroupStateResponseData.StateBatch> batches = new ArrayList<>();
        for (int index = 4; index < words.length; index++) {
            String[] parts = words[index].split(",");
            batches.add(new ReadShareGroupStateResponseData.StateBatch().setFirstOffset(Long.parseLong(parts[0]))
                .setLastOffset(Long.parseLong(parts[1])).setDeliveryState(Byte.parseByte(parts[2]))
                .setDeliveryCount(Short.parseShort(parts[3])));
        }
        loaded = ReadShareGroupStateResult.from(new ReadShareGroupStateResponseData().setResults(List.of(
            new ReadShareGroupStateResponseData.ReadStateResult().setTopicId(TOPIC).setPartitions(List.of(
                new ReadShareGroupStateResponseData.PartitionResult().setPartition(0)
                    .setStartOffset(Long.parseLong(words[3])).setStateEpoch(1).setStateBatches(batches))))));
        partition = new SharePartition("group", new TopicIdPartition(TOPIC, new TopicPartition("topic", 0)), 1,
            Integer.parseInt(words[1]), Integer.parseInt(words[2]), 1000, port(Timer.class), port(Time.class),
            port(Persister.class), null, groupConfigs(), null);
        partition.maybeInitialize().join();
    }

    private static GroupConfigManager groupConfigs() {
        Map<String, String> needed = Map.of("node.id", "1", "process.roles", "broker", "controller.listener.names", "C");
        AbstractConfig broker = new AbstractConfig(AbstractKafkaConfig.CONFIG_DEF, needed, false);
        return new GroupConfigManager(Map.of(), new GroupCoordinatorConfig(broker), new ShareGroupConfig(broker));
    }

    @SuppressWarnings("unchecked")
    private static <T> T port(Class<T> type) {
        return (T) Proxy.newProxyInstance(type.getClassLoader(), new Class<?>[] {type}, (proxy, method, values) ->
            switch (method.getName()) {
                case "hiResClockMs", "milliseconds" -> now;
                case "add" -> {
                    new TimerTaskEntry((TimerTask) values[0], 0);  // without one a task counts as cancelled
                    TASKS.add((TimerTask) values[0]);
                    ENDS.add(now + ((TimerTask) values[0]).delayMs);
                    yield null;
                }
                case "readState" -> CompletableFuture.completedFuture(loaded);
                case "writeState" -> write((WriteShareGroupStateParameters) values[0]);
                default -> throw new UnsupportedOperationException(method.getName());
            });
    }

    private static CompletableFuture<WriteShareGroupStateResult> write(WriteShareGroupStateParameters parameters) {
        PartitionStateBatchData data =
            parameters.groupTopicPartitionData().topicsData().get(0).partitions().get(0);
        StringBuilder text = new StringBuilder("write:" + data.startOffset() + ":" + data.deliveryCompleteCount());
        for (PersisterStateBatch batch : data.stateBatches())
            text.append(":").append(batch.firstOffset()).append(",").append(batch.lastOffset()).append(",")
                .append(batch.deliveryState()).append(",").append(batch.deliveryCount());
        EVENTS.add(text.toString());
        WRITES.add(new CompletableFuture<>());
        return WRITES.getLast();
    }

    private static void written(boolean committed) throws Exception {
        WRITES.removeFirst().complete(WriteShareGroupStateResult.from(new WriteShareGroupStateResponseData().setResults(
            List.of(new WriteShareGroupStateResponseData.WriteStateResult().setTopicId(TOPIC).setPartitions(List.of(
                new WriteShareGroupStateResponseData.PartitionResult().setPartition(0)
                    .setErrorCode(committed ? 0 : Errors.COORDINATOR_NOT_AVAILABLE.code())))))));
        if (!committed) {
            // Ottla moves the window at once; Kafka with the next write that is committed.
            Method settle = SharePartition.class.getDeclaredMethod("maybeUpdateCachedStateAndOffsets");
            settle.setAccessible(true);
            settle.invoke(partition);
        }
    }

    private static void advance(long time) {
        now = time;
        List<Integer> due = new ArrayList<>();
        for (int index = 0; index < TASKS.size(); index++)
            if (ENDS.get(index) <= now) due.add(index);
        due.sort(Comparator.comparingLong(ENDS::get));
        List<TimerTask> tasks = due.stream().map(TASKS::get).toList();
        for (int index = TASKS.size() - 1; index >= 0; index--)
            if (ENDS.get(index) <= now) { TASKS.remove(index); ENDS.remove(index); }
        for (TimerTask task : tasks)
            if (!task.isCancelled())
                try {
                    task.run();
                } catch (NullPointerException noPurgatory) {
                    // There is no ReplicaManager whose waiting fetches could be looked at.
                }
    }

    private static String outcome(CompletableFuture<Void> future) {
        try {
            future.getNow(null);
            return "ok";
        } catch (Exception error) {
            return Errors.forException(error.getCause()).name();
        }
    }

    private static List<ShareAcknowledgementBatch> acknowledgements(String[] words) {
        List<ShareAcknowledgementBatch> batches = new ArrayList<>();
        for (int index = 2; index < words.length; index++) {
            String[] parts = words[index].split(",");
            List<Byte> types = new ArrayList<>();
            for (int place = 2; place < parts.length; place++) types.add(Byte.parseByte(parts[place]));
            batches.add(new ShareAcknowledgementBatch(Long.parseLong(parts[0]), Long.parseLong(parts[1]), types));
        }
        return batches;
    }

    /** acquire MEMBER RECORDS SIZE STRICT FETCH_OFFSET ABORTED(pid,first;...|-) BASE,LAST,PID,ABORT... */
    private static String acquire(String[] words) {
        List<FetchResponseData.AbortedTransaction> aborted = new ArrayList<>();
        if (!words[6].equals("-"))
            for (String each : words[6].split(";"))
                aborted.add(new FetchResponseData.AbortedTransaction().setProducerId(Long.parseLong(each.split(",")[0]))
                    .setFirstOffset(Long.parseLong(each.split(",")[1])));
        ByteBuffer buffer = ByteBuffer.allocate(1 << 16);
        for (int index = 7; index < words.length; index++) batch(buffer, words[index].split(","));
        buffer.flip();
        FetchPartitionData data = new FetchPartitionData(Errors.NONE, 0, 0, MemoryRecords.readableRecords(buffer),
            Optional.empty(), OptionalLong.empty(), Optional.of(aborted), OptionalInt.empty(), false);
        StringBuilder text = new StringBuilder("acquired");
        for (AcquiredRecords each : partition.acquire(words[1],
            words[4].equals("true") ? ShareAcquireMode.RECORD_LIMIT : ShareAcquireMode.BATCH_OPTIMIZED,
            Integer.parseInt(words[3]), Integer.parseInt(words[2]), Long.parseLong(words[5]), data,
            FetchIsolation.TXN_COMMITTED).acquiredRecords())
            text.append(":").append(each.firstOffset()).append(",").append(each.lastOffset()).append(",")
                .append(each.deliveryCount());
        return text.toString();
    }

    private static void batch(ByteBuffer buffer, String[] parts) {
        long first = Long.parseLong(parts[0]), last = Long.parseLong(parts[1]), producer = Long.parseLong(parts[2]);
        if (parts[3].equals("true")) {
            ByteBuffer marker = MemoryRecords.withEndTransactionMarker(first, 0L, 0, producer, (short) 0,
                new org.apache.kafka.common.record.internal.EndTransactionMarker(
                    org.apache.kafka.common.record.internal.ControlRecordType.ABORT, 0)).buffer();
            buffer.put(marker);
            return;
        }
        try (MemoryRecordsBuilder builder = MemoryRecords.builder(buffer, RecordBatch.CURRENT_MAGIC_VALUE,
            Compression.NONE, TimestampType.CREATE_TIME, first, 0L, producer, (short) (producer < 0 ? -1 : 0),
            producer < 0 ? -1 : 0, producer >= 0, 0)) {
            for (long offset = first; offset <= last; offset++)
                builder.appendWithOffset(offset, 0L, null, new byte[0]);
        }
    }
}
