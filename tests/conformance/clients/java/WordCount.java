import java.time.Duration;
import java.util.Arrays;
import java.util.Locale;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;

import org.apache.kafka.common.serialization.Serdes;
// AppInfoParser is in the first of these packages in Kafka 4.3, in the second in 4.4.
import org.apache.kafka.common.utils.*;
import org.apache.kafka.common.utils.internals.*;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;

/**
 * Counts words with Kafka Streams until as many as told have been counted, then prints the counts it holds as JSON.
 * Arguments: bootstrap, application id, input topic, output topic, words to wait for, state directory.
 */
public class WordCount {
    public static void main(String[] args) throws Exception {
        Properties settings = new Properties();
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, args[0]);
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, args[1]);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, args[5]);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.AT_LEAST_ONCE);
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 200);
        settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 2);
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put("auto.offset.reset", "earliest");
        // Streams does not leave its group when it stops: the next run waits for this long.
        settings.put("session.timeout.ms", 6000);
        settings.put("heartbeat.interval.ms", 1000);
        settings.put("repartition.purge.interval.ms", 200);
        Map<String, Long> counts = new ConcurrentHashMap<>();
        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream(args[2])
            .flatMapValues(line -> Arrays.asList(line.toLowerCase(Locale.ROOT).split("\\W+")))
            .groupBy((key, word) -> word, Grouped.as("words"))
            .count(Materialized.as("counts"))
            .toStream()
            .peek(counts::put)
            .to(args[3], Produced.with(Serdes.String(), Serdes.Long()));
        long wanted = Long.parseLong(args[4]);
        boolean came = false;
        try (KafkaStreams streams = new KafkaStreams(builder.build(), settings)) {
            streams.start();
            long deadline = System.nanoTime() + Duration.ofSeconds(90).toNanos();
            while (!came && System.nanoTime() < deadline) {
                Thread.sleep(50);
                came = counts.values().stream().mapToLong(Long::longValue).sum() >= wanted;
            }
            streams.close(Duration.ofSeconds(20));
        }
        StringBuilder words = new StringBuilder();
        new TreeMap<>(counts).forEach((word, n) ->
            words.append(words.length() == 0 ? "" : ",").append('"').append(word).append("\":").append(n));
        System.out.printf("{\"client\":\"kafka-streams\",\"version\":\"%s\",\"counts\":{%s}}%n",
            AppInfoParser.getVersion(), words);
        System.exit(came ? 0 : 1);
    }
}
