//! The round of the client matrix with rskafka, which has no groups: it follows its own offsets.

use std::collections::BTreeMap;
use std::error::Error;
use std::io;
use std::time::{Duration, Instant};

use chrono::Utc;
use rskafka::client::partition::{Compression, OffsetAt, PartitionClient, UnknownTopicHandling};
use rskafka::client::{Client, ClientBuilder};
use rskafka::record::Record;
use serde_json::json;

type Outcome<T> = Result<T, Box<dyn Error>>;

const VERSION: &str = "0.6.0";
const PER_CODEC: usize = 50;
const PARTITIONS: usize = 2;
const AS_THE_BROKER_SAYS: i16 = -1;
const HEARD_OF_MAX: Duration = Duration::from_secs(10);
const CODECS: [(&str, Compression); 5] = [
    ("none", Compression::NoCompression),
    ("gzip", Compression::Gzip),
    ("snappy", Compression::Snappy),
    ("lz4", Compression::Lz4),
    ("zstd", Compression::Zstd),
];

fn value_of(key: &str) -> String {
    format!("{key}:{}", "x".repeat(100))
}

/// Tells whoever runs the program how far it is, and waits for a line, or for the end of the input.
fn middle(of: &str) -> Outcome<()> {
    println!("{}", json!({ "middle": of }));
    io::stdin().read_line(&mut String::new())?;
    Ok(())
}

fn record(codec: &str, i: usize) -> Record {
    let key = format!("{codec}-{i}");
    Record {
        value: Some(value_of(&key).into_bytes()),
        key: Some(key.into_bytes()),
        headers: BTreeMap::from([
            ("codec".to_owned(), codec.as_bytes().to_vec()),
            ("n".to_owned(), i.to_string().into_bytes()),
        ]),
        timestamp: Utc::now(),
    }
}

/// Reads a partition from an offset to its end and counts by codec.
async fn read(partition: &PartitionClient, from: i64, consumed: &mut BTreeMap<String, usize>) -> Outcome<usize> {
    let (mut next, mut read) = (from, 0);
    loop {
        let (records, high_watermark) = partition.fetch_records(next, 1..1_000_000, 1_000).await?;
        for each in records {
            let text = |bytes: &Vec<u8>| String::from_utf8_lossy(bytes).into_owned();
            let key = text(each.record.key.as_ref().ok_or("a record without key")?);
            let value = text(each.record.value.as_ref().ok_or("a record without value")?);
            let codec = text(&each.record.headers["codec"]);
            if key != format!("{codec}-{}", text(&each.record.headers["n"])) || value != value_of(&key) {
                return Err(format!("not what was written: {key} {value}").into());
            }
            *consumed.entry(codec).or_default() += 1;
            next = each.offset + 1;
            read += 1;
        }
        if next >= high_watermark {
            return Ok(read);
        }
    }
}

async fn partition_client(client: &Client, topic: &str, partition: usize) -> Outcome<PartitionClient> {
    Ok(client
        .partition_client(topic, partition as i32, UnknownTopicHandling::Retry)
        .await?)
}

async fn create_and_delete(client: &Client, topic: &str) -> Outcome<bool> {
    let controller = client.controller_client()?;
    controller.create_topic(topic, 1, AS_THE_BROKER_SAYS, 5_000).await?;
    controller.delete_topic(topic, 5_000).await?;
    Ok(client.list_topics().await?.iter().all(|each| each.name != topic))
}

#[tokio::main]
async fn main() -> Outcome<()> {
    let started = Instant::now();
    let arguments: Vec<String> = std::env::args().collect();
    let [_, bootstrap, topic] = arguments.as_slice() else {
        return Err("usage: clients BOOTSTRAP TOPIC".into());
    };
    let client = ClientBuilder::new(bootstrap.split(',').map(str::to_owned).collect()).build().await?;
    client
        .controller_client()?
        .create_topic(topic, PARTITIONS as i32, AS_THE_BROKER_SAYS, 5_000)
        .await?;
    // Any of the brokers is asked, and one may hear of the topic a moment later than the one that answered before.
    let mut partitions = 0;
    while partitions == 0 && started.elapsed() < HEARD_OF_MAX {
        let described = client.list_topics().await?;
        partitions = described
            .iter()
            .find(|each| each.name == *topic)
            .map_or(0, |each| each.partitions.len());
    }

    let mut produced = BTreeMap::new();
    let (mut earliest, mut latest) = (BTreeMap::new(), BTreeMap::new());
    let mut consumed = BTreeMap::new();
    let mut resumed = 0;
    for p in 0..PARTITIONS {
        let partition = partition_client(&client, topic, p).await?;
        for (name, codec) in CODECS {
            let batch: Vec<Record> = (p..PER_CODEC).step_by(PARTITIONS).map(|i| record(name, i)).collect();
            *produced.entry(name).or_insert(0) += batch.len();
            partition.produce(batch, codec).await?;
            if p == 0 && produced.len() == CODECS.len() / 2 {
                middle("writing")?;
            }
        }
        if p == 0 {
            middle("reading")?;
        }
        read(&partition, 0, &mut consumed).await?;
        earliest.insert(p.to_string(), partition.get_offset(OffsetAt::Earliest).await?);
        let end = partition.get_offset(OffsetAt::Latest).await?;
        latest.insert(p.to_string(), end);
        resumed += read(&partition, end - 5, &mut BTreeMap::new()).await?;
    }
    middle("end")?;
    let deleted = create_and_delete(&client, &format!("{topic}-gone")).await?;
    let report = json!({
        "client": "rskafka", "version": VERSION, "partitions": partitions, "produced": produced,
        "consumed": consumed, "repeated": 0, "resumed": resumed, "earliest": earliest, "latest": latest, "deleted": deleted,
        "seconds": started.elapsed().as_secs_f64(),
    });
    println!("{report}");
    Ok(())
}
