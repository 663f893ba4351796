// Prints what a release of Kafka keeps in enums and ConfigDefs, a JSON object a line, for `tools/kafka_tables.py`:
// java -cp 'JARS/*' tools/KafkaTables.java
// Classes of the broker move between releases, so all of them are found by reflection; what is not found is printed as
// such.

import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;

import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.protocol.Errors;

public class KafkaTables {
    public static void main(String[] arguments) {
        for (Errors each : Errors.values())
            print("error", "name", each.name(), "code", (int) each.code(), "message", each.message(), "retriable",
                each.exception() instanceof RetriableException);
        part("metadata version", KafkaTables::metadataVersions);
        part("feature", KafkaTables::features);
        part("dynamic mode", () -> texts("dynamic mode", (Map<?, ?>) member("org.apache.kafka.server.config.DynamicBrokerConfig", "dynamicConfigUpdateModes")));
        part("topic synonym", () -> synonyms("org.apache.kafka.server.config.ServerTopicConfigSynonyms"));
        part("group synonym", () -> texts("group synonym", (Map<?, ?>) member("org.apache.kafka.coordinator.group.GroupConfig", "ALL_GROUP_CONFIG_SYNONYMS")));
        settings("broker", "org.apache.kafka.server.config.AbstractKafkaConfig", "CONFIG_DEF", "configDef");
        settings("topic", "org.apache.kafka.storage.internals.log.LogConfig", "configDefCopy", "CONFIG");
        settings("group", "org.apache.kafka.coordinator.group.GroupConfig", "CONFIG_DEF", "configDef");
        settings("client metrics", "org.apache.kafka.server.metrics.ClientMetricsConfigs", "configDef", "CONFIG");
        settings("broker quota", "org.apache.kafka.server.config.QuotaConfig", "brokerQuotaConfigs");
        settings("client quota", "org.apache.kafka.server.config.QuotaConfig", "userAndClientQuotaConfigs");
        settings("ip quota", "org.apache.kafka.server.config.QuotaConfig", "ipConfigs");
        settings("producer", "org.apache.kafka.clients.producer.ProducerConfig", "configDef", "CONFIG");
        settings("consumer", "org.apache.kafka.clients.consumer.ConsumerConfig", "configDef", "CONFIG");
        settings("admin", "org.apache.kafka.clients.admin.AdminClientConfig", "configDef", "CONFIG");
    }

    interface Part {
        void print() throws Exception;
    }

    private static void part(String name, Part part) {
        try {
            part.print();
        } catch (Exception | LinkageError error) {
            print("missing", "name", name, "why", error.toString());
        }
    }

    private static void metadataVersions() throws Exception {
        Class<?> versions = Class.forName("org.apache.kafka.server.common.MetadataVersion");
        for (Object each : versions.getEnumConstants())
            print("metadata version", "name", call(each, "version"), "level", number(call(each, "featureLevel")),
                "production", call(each, "isProduction"), "changes records", call(each, "didMetadataChange"));
    }

    private static void features() throws Exception {
        Class<?> features = Class.forName("org.apache.kafka.server.common.Feature");
        for (Object each : (Collection<?>) features.getField("PRODUCTION_FEATURES").get(null)) {
            Map<String, Object> levels = new TreeMap<>();
            for (Object level : (Object[]) call(each, "featureVersions")) {
                Map<String, Object> more = new LinkedHashMap<>();
                more.put("bootstrap", call(call(level, "bootstrapMetadataVersion"), "version"));
                more.put("needs", new TreeMap<>((Map<?, ?>) call(level, "dependencies")));
                levels.put(String.valueOf(call(level, "featureLevel")), more);
            }
            print("feature", "name", call(each, "featureName"), "production", number(call(each, "latestProduction")),
                "testing", number(call(each, "latestTesting")), "levels", levels);
        }
    }

    private static void synonyms(String className) throws Exception {
        Map<String, Object> found = new TreeMap<>();
        for (Map.Entry<?, ?> each : ((Map<?, ?>) member(className, "ALL_TOPIC_CONFIG_SYNONYMS")).entrySet()) {
            List<Object> names = new ArrayList<>();
            for (Object one : (Collection<?>) each.getValue())
                names.add(call(one, "name"));
            found.put((String) each.getKey(), String.join(", ", names.toArray(new String[0])));
        }
        texts("topic synonym", found);
    }

    private static void texts(String kind, Map<?, ?> found) {
        for (Map.Entry<?, ?> each : new TreeMap<>(found).entrySet()) {
            Object value = each.getValue();
            if (value instanceof Optional)
                value = ((Optional<?>) value).orElse(null);
            print(kind, "name", each.getKey(), "value", value);
        }
    }

    private static void settings(String kind, String className, String... members) {
        part(kind + " settings", () -> {
            ConfigDef found = null;
            for (String each : members)
                try {
                    found = (ConfigDef) member(className, each);
                    break;
                } catch (NoSuchFieldException | NoSuchMethodException absent) {
                    continue;
                }
            if (found == null)
                throw new NoSuchFieldException(className + " has none of " + String.join(", ", members));
            for (ConfigDef.ConfigKey key : new TreeMap<>(found.configKeys()).values())
                print("setting", "kind", kind, "name", key.name, "type", key.type.name(), "default",
                    key.hasDefault() ? value(key) : null, "required", !key.hasDefault(), "validator",
                    key.validator == null ? null : key.validator.toString().replaceAll("@[0-9a-f]+$", ""),
                    "importance", key.importance.name(), "internal", key.internalConfig, "documentation",
                    key.documentation);
        });
    }

    private static String value(ConfigDef.ConfigKey key) {
        return ConfigDef.convertToString(key.defaultValue, key.type);
    }

    /** A static field or a static method without arguments, whoever may see it. */
    private static Object member(String className, String name) throws Exception {
        Class<?> owner = Class.forName(className);
        try {
            Field field = owner.getDeclaredField(name);
            field.setAccessible(true);
            return field.get(null);
        } catch (NoSuchFieldException absent) {
            Method method = owner.getDeclaredMethod(name);
            method.setAccessible(true);
            return method.invoke(null);
        }
    }

    private static Object call(Object of, String name) throws Exception {
        Class<?> owner = of instanceof Enum ? ((Enum<?>) of).getDeclaringClass() : of.getClass();
        try {
            Method method = owner.getMethod(name);
            method.setAccessible(true);
            return method.invoke(of);
        } catch (NoSuchMethodException absent) {
            return member(owner, of, name);
        }
    }

    private static Object member(Class<?> owner, Object of, String name) throws Exception {
        try {
            Method method = owner.getDeclaredMethod(name);
            method.setAccessible(true);
            return method.invoke(of);
        } catch (NoSuchMethodException absent) {
            Field field = owner.getDeclaredField(name);
            field.setAccessible(true);
            return field.get(of);
        }
    }

    private static int number(Object value) {
        return ((Number) value).intValue();
    }

    private static void print(String what, Object... namesAndValues) {
        Map<String, Object> row = new LinkedHashMap<>();
        row.put("what", what);
        for (int at = 0; at < namesAndValues.length; at += 2)
            row.put((String) namesAndValues[at], namesAndValues[at + 1]);
        System.out.println(json(row));
    }

    private static String json(Object value) {
        if (value == null || value instanceof Number || value instanceof Boolean)
            return String.valueOf(value);
        List<String> parts = new ArrayList<>();
        if (value instanceof Map) {
            for (Map.Entry<?, ?> each : ((Map<?, ?>) value).entrySet())
                parts.add(json(String.valueOf(each.getKey())) + ":" + json(each.getValue()));
            return "{" + String.join(",", parts) + "}";
        }
        StringBuilder text = new StringBuilder("\"");
        for (char each : String.valueOf(value).toCharArray())
            if (each == '"' || each == '\\')
                text.append('\\').append(each);
            else if (each < ' ' || each > '~')
                text.append(String.format("\\u%04x", (int) each));
            else
                text.append(each);
        return text.append('"').toString();
    }
}
