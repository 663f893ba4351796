import java.util.Arrays;
import java.util.Properties;

import org.apache.kafka.common.serialization.Serdes;
// AppInfoParser is in the first of these packages in Kafka 4.3, in the second in 4.4.
import org.apache.kafka.common.utils.*;
import org.apache.kafka.common.utils.internals.*;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;

/**
 * Kafka Streams with exactly_once_v2, until it is killed: counts words, sums payments by account, and joins payments
 * with the table of accounts. Each update is written, none is gathered in a cache.
 * Arguments: bootstrap, prefix of the topics and application id, state directory, and perhaps the group protocol
 * (classic or streams). Prints a line with its version first.
 * Topics: PREFIX-lines, PREFIX-payments (account to amount), PREFIX-accounts (account to name);
 * PREFIX-counts, PREFIX-sums, PREFIX-joined.
 */
public class ExactlyOnce {
    public static void main(String[] args) throws Exception {
        String prefix = args[1];
        Properties settings = new Properties();
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, args[0]);
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, prefix);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, args[2]);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 100);
        settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
        settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 2);
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put("auto.offset.reset", "earliest");
        settings.put(StreamsConfig.GROUP_PROTOCOL_CONFIG, args.length > 3 ? args[3] : "classic");
        if (args.length <= 3 || args[3].equals("classic")) { // else the broker says
            // A process that was killed is missed for this long.
            settings.put("session.timeout.ms", 6000);
            settings.put("heartbeat.interval.ms", 1000);
        }

        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream(prefix + "-lines")
            .flatMapValues(line -> Arrays.asList(line.split(" ")))
            .groupBy((key, word) -> word, Grouped.as("words"))
            .count(Materialized.as("counts"))
            .toStream()
            .to(prefix + "-counts", Produced.with(Serdes.String(), Serdes.Long()));
        KStream<String, Long> payments =
            builder.stream(prefix + "-payments", Consumed.with(Serdes.String(), Serdes.String()))
                .mapValues(amount -> Long.parseLong(amount));
        payments.groupByKey(Grouped.with(Serdes.String(), Serdes.Long()))
            .aggregate(() -> 0L, (account, amount, sum) -> sum + amount, Materialized.with(Serdes.String(), Serdes.Long()))
            .toStream()
            .to(prefix + "-sums", Produced.with(Serdes.String(), Serdes.Long()));
        payments.join(
                builder.table(prefix + "-accounts", Consumed.with(Serdes.String(), Serdes.String())),
                (amount, name) -> name + " " + amount,
                Joined.with(Serdes.String(), Serdes.Long(), Serdes.String()))
            .to(prefix + "-joined", Produced.with(Serdes.String(), Serdes.String()));

        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        streams.setUncaughtExceptionHandler(error -> {
            System.err.println(error + ", because of " + error.getCause());
            return org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse.REPLACE_THREAD;
        });
        System.out.println(AppInfoParser.getVersion());
        System.out.flush();
        streams.start();
        Thread.currentThread().join();
    }
}
