import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.InetAddress;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AccessControlEntryFilter;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.internals.PluginMetricsImpl;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourcePatternFilter;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.utils.SecurityUtils;
import org.apache.kafka.metadata.authorizer.StandardAcl;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.security.authorizer.AclEntry;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.authorizer.AuthorizationResult;
import org.apache.logging.log4j.Level;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.core.LogEvent;
import org.apache.logging.log4j.core.Logger;
import org.apache.logging.log4j.core.LoggerContext;
import org.apache.logging.log4j.core.appender.AbstractAppender;
import org.apache.logging.log4j.core.config.Configurator;
import org.apache.logging.log4j.core.config.Property;

/** Kafka's authorizer, asked line by line: see tests/conformance/walks/authorizer_walk.py. */
public class AclLines {
    static final String AUDIT = "kafka.authorizer.logger";

    static class Heard extends AbstractAppender {
        String rule = "";

        Heard() {
            super("heard", null, null, true, Property.EMPTY_ARRAY);
        }

        @Override
        public void append(LogEvent event) {
            String said = event.getMessage().getFormattedMessage();
            rule = said.substring(said.indexOf(" based on rule ") + 15);
        }
    }

    static class Asked implements AuthorizableRequestContext {
        final KafkaPrincipal principal;
        final InetAddress address;

        Asked(String principal, String host) throws Exception {
            this.principal = SecurityUtils.parseKafkaPrincipal(principal);
            this.address = InetAddress.getByName(host);
        }

        public String listenerName() {
            return "PLAINTEXT";
        }

        public SecurityProtocol securityProtocol() {
            return SecurityProtocol.PLAINTEXT;
        }

        public KafkaPrincipal principal() {
            return principal;
        }

        public InetAddress clientAddress() {
            return address;
        }

        public int requestType() {
            return 0;
        }

        public int requestVersion() {
            return 0;
        }

        public String clientId() {
            return "client";
        }

        public int correlationId() {
            return 1;
        }
    }

    static byte code(String text) {
        return Byte.parseByte(text);
    }

    static StandardAcl acl(String[] f) {
        return new StandardAcl(ResourceType.fromCode(code(f[0])), f[1], PatternType.fromCode(code(f[2])), f[3], f[4],
            AclOperation.fromCode(code(f[5])), AclPermissionType.fromCode(code(f[6])));
    }

    static String[] items(String text, String by) {
        return text.isEmpty() ? new String[0] : text.split(by, -1);
    }

    /** Sections: super users, allow everyone, ACLs, questions (no name: any resource). */
    static String decided(String[] sections, Heard heard) throws Exception {
        StandardAuthorizer authorizer = new StandardAuthorizer();
        Metrics metrics = new Metrics();
        authorizer.withPluginMetrics(new PluginMetricsImpl(metrics, Map.of()));
        Map<String, Object> settings = new HashMap<>();
        settings.put("super.users", sections[1]);
        settings.put("allow.everyone.if.no.acl.found", sections[2]);
        settings.put("node.id", "1");
        authorizer.configure(settings);
        for (String each : items(sections[3], "\u001e")) {
            authorizer.addAcl(Uuid.randomUuid(), acl(each.split("\u001f", -1)));
        }
        authorizer.completeInitialLoad();
        List<String> answers = new ArrayList<>();
        for (String each : items(sections[4], "\u001e")) {
            String[] f = each.split("\u001f", -1);
            Asked asked = new Asked(f[0], f[1]);
            AclOperation operation = AclOperation.fromCode(code(f[2]));
            ResourceType kind = ResourceType.fromCode(code(f[3]));
            if (f[4].isEmpty()) {
                answers.add(authorizer.authorizeByResourceType(asked, operation, kind).name());
                continue;
            }
            ResourcePattern resource = new ResourcePattern(kind, f[4], PatternType.LITERAL);
            AuthorizationResult result =
                authorizer.authorize(asked, List.of(new Action(operation, resource, 1, true, true))).get(0);
            answers.add(result.name() + " " + heard.rule);
        }
        authorizer.close();
        metrics.close();
        return String.join("\u001e", answers);
    }

    /** Sections: ACLs, filters; the answer has the numbers of the ACLs that each matches. */
    static String matched(String[] sections) {
        List<String> answers = new ArrayList<>();
        List<AclBinding> bindings = new ArrayList<>();
        for (String each : items(sections[1], "\u001e")) {
            bindings.add(acl(each.split("\u001f", -1)).toBinding());
        }
        for (String each : items(sections[2], "\u001e")) {
            String[] f = each.split("\u001f", -1);
            for (int i = 0; i < f.length; i++) {
                f[i] = f[i].equals("null") ? null : f[i];
            }
            AclBindingFilter filter = new AclBindingFilter(
                new ResourcePatternFilter(ResourceType.fromCode(code(f[0])), f[1], PatternType.fromCode(code(f[2]))),
                new AccessControlEntryFilter(f[3], f[4], AclOperation.fromCode(code(f[5])),
                    AclPermissionType.fromCode(code(f[6]))));
            List<String> found = new ArrayList<>();
            for (int i = 0; i < bindings.size(); i++) {
                if (filter.matches(bindings.get(i))) {
                    found.add(Integer.toString(i));
                }
            }
            answers.add(String.join(",", found));
        }
        return String.join("\u001e", answers);
    }

    /** The codes of the operations that each type of resource supports. */
    static String supported() {
        List<String> answers = new ArrayList<>();
        for (ResourceType kind : ResourceType.values()) {
            if (kind != ResourceType.UNKNOWN && kind != ResourceType.ANY) {
                int bits = 0;
                for (AclOperation operation : AclEntry.supportedOperations(kind)) {
                    bits |= 1 << operation.code();
                }
                answers.add(kind.code() + "=" + bits);
            }
        }
        return String.join(" ", answers);
    }

    public static void main(String[] arguments) throws Exception {
        Heard heard = new Heard();
        heard.start();
        Configurator.setLevel(AUDIT, Level.DEBUG);
        Logger audit = ((LoggerContext) LogManager.getContext(false)).getLogger(AUDIT);
        audit.setAdditive(false);
        audit.addAppender(heard);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        String line;
        while ((line = in.readLine()) != null) {
            String[] sections = line.split("\u001d", -1);
            String answer;
            try {
                answer = switch (sections[0]) {
                    case "decide" -> decided(sections, heard);
                    case "match" -> matched(sections);
                    default -> supported();
                };
            } catch (Exception error) {
                answer = "failed " + error;
            }
            System.out.println("answer " + answer + "|");
            System.out.flush();
        }
    }
}
