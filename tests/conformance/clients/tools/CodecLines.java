import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.sun.management.OperatingSystemMXBean;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.management.ManagementFactory;
import java.lang.reflect.Constructor;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Map;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageUtil;

/**
 * Kafka's generated message classes, asked line by line: see tests/conformance/codec/codec_walk.py and bench/codec.py.
 *
 * <p>write CLASS VERSION JSON: the bytes of a message. read CLASS VERSION HEX: whether Kafka reads these bytes, how many
 * of them, and the message written again as bytes and as JSON. time decode|encode CLASS VERSION HEX MILLIS: nanoseconds
 * of CPU per operation and how many operations were done.
 */
public class CodecLines {
    static final ObjectMapper JSON = new ObjectMapper();
    static final OperatingSystemMXBean PROCESS =
        (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();

    /** One generated class. */
    static class Kind {
        final Constructor<?> constructor;
        final Method fromJson;
        final Method toJson;

        Kind(String name) throws ReflectiveOperationException {
            Class<?> type = Class.forName(name);
            Class<?> converter = Class.forName(name + "JsonConverter");
            constructor = type.getConstructor();
            fromJson = converter.getMethod("read", JsonNode.class, short.class);
            toJson = converter.getMethod("write", type, short.class);
        }

        Message empty() throws ReflectiveOperationException {
            return (Message) constructor.newInstance();
        }
    }

    static final Map<String, Kind> KINDS = new HashMap<>();

    /** Keeps results alive, so that the compiler cannot leave the work out. */
    static volatile Object sink;

    static Kind kind(String name) throws ReflectiveOperationException {
        Kind known = KINDS.get(name);
        if (known == null) {
            known = new Kind(name);
            KINDS.put(name, known);
        }
        return known;
    }

    static String written(Message message, short version) {
        ByteBuffer bytes = MessageUtil.toByteBufferAccessor(message, version).buffer();
        byte[] copy = new byte[bytes.remaining()];
        bytes.get(copy);
        return HexFormat.of().formatHex(copy);
    }

    static String refused(Throwable error) {
        Throwable cause = error instanceof InvocationTargetException ? error.getCause() : error;
        return "refused " + cause.getClass().getSimpleName() + " " + String.valueOf(cause.getMessage()).replace('\n', ' ');
    }

    static String write(Kind kind, short version, String json) throws Exception {
        try {
            return "ok " + written((Message) kind.fromJson.invoke(null, JSON.readTree(json), version), version);
        } catch (InvocationTargetException | RuntimeException error) {
            return refused(error);
        }
    }

    static String read(Kind kind, short version, byte[] bytes) throws Exception {
        ByteBufferAccessor readable = new ByteBufferAccessor(ByteBuffer.wrap(bytes));
        Message message = kind.empty();
        try {
            message.read(readable, version);
        } catch (RuntimeException | OutOfMemoryError error) {
            return refused(error);
        }
        int consumed = bytes.length - readable.remaining();
        String again;
        try {
            again = "." + written(message, version);
        } catch (RuntimeException error) {
            again = "-"; // read, but nothing that Kafka would write
        }
        return "ok " + consumed + " " + again + " " + kind.toJson.invoke(null, message, version);
    }

    static long decode(Constructor<?> constructor, short version, byte[] bytes, int count) throws Exception {
        for (int i = 0; i < count; i++) {
            Message message = (Message) constructor.newInstance();
            message.read(new ByteBufferAccessor(ByteBuffer.wrap(bytes)), version);
            sink = message;
        }
        return count;
    }

    static long encode(Message message, short version, int count) {
        for (int i = 0; i < count; i++) {
            sink = MessageUtil.toByteBufferAccessor(message, version);
        }
        return count;
    }

    /** CPU time of the whole process: the garbage collector's too, and the compiler's while the code is not yet warm. */
    static String time(boolean decodes, Kind kind, short version, byte[] bytes, long millis) throws Exception {
        Message message = kind.empty();
        message.read(new ByteBufferAccessor(ByteBuffer.wrap(bytes)), version);
        long begin = System.nanoTime();
        long before = PROCESS.getProcessCpuTime();
        long done = 0;
        int share = 1;
        do {
            done += decodes ? decode(kind.constructor, version, bytes, share) : encode(message, version, share);
            if (System.nanoTime() - begin < millis * 100_000) {
                share = Math.min(share * 2, 1 << 16);
            }
        } while (System.nanoTime() - begin < millis * 1_000_000);
        double nanos = PROCESS.getProcessCpuTime() - before;
        return nanos / done + " " + done;
    }

    static String answer(String line) throws Exception {
        String[] words = line.split(" ", 4);
        switch (words[0]) {
            case "write":
                return write(kind(words[1]), Short.parseShort(words[2]), words[3]);
            case "read":
                return read(kind(words[1]), Short.parseShort(words[2]), HexFormat.of().parseHex(words[3].trim()));
            case "time":
                String[] more = words[3].split(" ");
                return time(words[1].equals("decode"), kind(words[2]), Short.parseShort(more[0]),
                    HexFormat.of().parseHex(more[1]), Long.parseLong(more[2]));
            default:
                throw new IllegalArgumentException(line);
        }
    }

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8), 1 << 16);
        PrintStream out = new PrintStream(new java.io.BufferedOutputStream(System.out, 1 << 16), false, "UTF-8");
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.print("answer " + answer(line) + "\n");
            if (!in.ready()) {
                out.flush();
            }
        }
        out.flush();
    }
}
