import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;

import org.apache.kafka.common.utils.*;
import org.apache.kafka.common.utils.internals.*;

// Exit is in the first of these packages in Kafka 4.3, in the second in 4.4.

/**
 * Runs the main methods of Kafka's tools one after the other in one JVM, since starting one takes longer than most tools.
 * A request on standard input is a count, then so many strings: class, what the tool finds on its standard input, and
 * arguments. The answer is the exit status, what it printed, and what it printed as errors. Strings have their length first.
 */
public class Shell {
    /** Ends a tool where it would have ended the process. An Error, so that a tool does not take it for its own failure. */
    private static final class Ended extends Error {
        Ended() {
            super("ended", null, false, false);
        }
    }

    /** What a tool does when its process ends: the console producer sends the rest of its records only then. */
    private static final List<Runnable> HOOKS = new ArrayList<>();
    private static final long HOOK_LIMIT_MS = 60_000;

    private static Integer status;

    public static void main(String[] none) throws Exception {
        DataInputStream requests = new DataInputStream(System.in);
        DataOutputStream answers = new DataOutputStream(System.out);
        PrintStream errors = System.err;
        Exit.setExitProcedure(Shell::end);
        Exit.setHaltProcedure(Shell::end);
        Exit.setShutdownHookAdder((name, hook) -> HOOKS.add(hook));
        while (true) {
            String[] words;
            try {
                words = new String[requests.readInt()];
            } catch (EOFException closed) {
                Runtime.getRuntime().halt(0);
                return;
            }
            for (int i = 0; i < words.length; i++)
                words[i] = new String(requests.readNBytes(requests.readInt()), StandardCharsets.UTF_8);
            ByteArrayOutputStream out = new ByteArrayOutputStream();
            ByteArrayOutputStream err = new ByteArrayOutputStream();
            System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
            System.setErr(new PrintStream(err, true, StandardCharsets.UTF_8));
            System.setIn(new ByteArrayInputStream(words[1].getBytes(StandardCharsets.UTF_8)));
            run(words);
            runHooks();
            System.out.flush();
            System.err.flush();
            System.setErr(errors);
            answers.writeInt(status == null ? 0 : status);
            for (ByteArrayOutputStream each : new ByteArrayOutputStream[] {out, err}) {
                byte[] text = each.toByteArray();
                answers.writeInt(text.length);
                answers.write(text);
            }
            answers.flush();
        }
    }

    private static void end(int code, String message) {
        if (status == null)
            status = code;
        if (message != null)
            System.err.println(message);
        throw new Ended();
    }

    private static void runHooks() throws InterruptedException {
        for (Runnable hook : HOOKS) {
            Thread thread = new Thread(hook);
            thread.setUncaughtExceptionHandler((where, ended) -> { });
            thread.setDaemon(true);
            thread.start();
            thread.join(HOOK_LIMIT_MS);
        }
        HOOKS.clear();
    }

    private static void run(String[] words) {
        status = null;
        String[] arguments = java.util.Arrays.copyOfRange(words, 2, words.length);
        try {
            Class.forName(words[0]).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (InvocationTargetException failed) {
            if (!(failed.getCause() instanceof Ended)) {
                failed.getCause().printStackTrace();
                status = 1;
            }
        } catch (ReflectiveOperationException absent) {
            absent.printStackTrace();
            status = 127;
        }
    }
}
