import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.Quota;
import org.apache.kafka.common.metrics.stats.Rate;
import org.apache.kafka.common.metrics.stats.TokenBucket;

/** Kafka's arithmetic of quotas, asked line by line: see tests/conformance/walks/test_quota_walk.py. */
public class QuotaLines {
    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        MetricConfig config = null;
        Rate rate = null;
        TokenBucket bucket = null;
        String line;
        while ((line = in.readLine()) != null) {
            String[] words = line.split(" ");
            String answer = "";
            switch (words[0]) {
                case "new":
                    config = new MetricConfig().samples(Integer.parseInt(words[1]))
                        .timeWindow(Long.parseLong(words[2]), TimeUnit.MILLISECONDS)
                        .quota(new Quota(Double.parseDouble(words[3]), true));
                    rate = new Rate();
                    bucket = new TokenBucket();
                    break;
                case "record":
                    rate.record(config, Double.parseDouble(words[1]), Long.parseLong(words[2]));
                    bucket.record(config, Double.parseDouble(words[1]), Long.parseLong(words[2]));
                    break;
                case "measure":
                    long now = Long.parseLong(words[1]);
                    double value = rate.measure(config, now);
                    double bound = config.quota().bound();
                    long span = rate.windowSize(config, now);
                    double tokens = bucket.measure(config, now);
                    answer = value + " " + span + " " + Math.round((value - bound) / bound * span)
                        + " " + tokens + " " + Math.round(-tokens / bound * 1000);
                    break;
                default:
                    throw new IllegalArgumentException(line);
            }
            System.out.println("answer " + answer + "|");
            System.out.flush();
        }
    }
}
