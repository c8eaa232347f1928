// The Java client: Produce BROKERS TOPIC CODEC TRANSACTION FILE
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.serialization.StringSerializer;

public class Produce {
    public static void main(String[] args) throws Exception {
        String brokers = args[0], topic = args[1], codec = args[2], transaction = args[3], file = args[4];
        Properties conf = new Properties();
        conf.put("bootstrap.servers", brokers);
        conf.put("compression.type", codec);
        conf.put("acks", "all");
        boolean transactional = !transaction.equals("none");
        if (transactional) {
            conf.put("transactional.id", "java-" + codec + "-" + transaction);
        }
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(conf, new StringSerializer(), new StringSerializer())) {
            if (transactional) {
                producer.initTransactions();
                producer.beginTransaction();
            }
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (String line : Files.readAllLines(Path.of(file))) {
                int at = line.indexOf('\t');
                sent.add(producer.send(new ProducerRecord<>(topic, line.substring(0, at), line.substring(at + 1))));
            }
            producer.flush();
            for (Future<RecordMetadata> one : sent) {
                one.get();
            }
            if (transaction.equals("commit")) {
                producer.commitTransaction();
            }
            if (transaction.equals("abort")) {
                producer.abortTransaction();
            }
        }
    }
}
