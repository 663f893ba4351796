package org.apache.kafka.ottla;

import com.google.re2j.Pattern;
import com.google.re2j.PatternSyntaxException;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Base64;

/** RE2/J, asked line by line: PATTERN TEXT TEXT ..., each in base64 behind a "t", for which texts match as a whole, or "invalid". */
public class RegexLines {
    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            StringBuilder answer = new StringBuilder();
            try {
                Pattern pattern = Pattern.compile(text(words[0]));
                for (int index = 1; index < words.length; index++)
                    answer.append(pattern.matcher(text(words[index])).matches() ? '1' : '0');
            } catch (PatternSyntaxException error) {
                answer = new StringBuilder("invalid");
            }
            System.out.println("answer " + answer + "|");
            System.out.flush();
        }
    }

    private static String text(String word) {
        return new String(Base64.getDecoder().decode(word.substring(1)), StandardCharsets.UTF_8);
    }
}
