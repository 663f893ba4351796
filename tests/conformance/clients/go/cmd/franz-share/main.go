// Share consumers of franz-go, driven line by line by a test (`share_consumers.py`).
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"ottla.test/clients/matrix"
)

type consumer struct {
	client  *kgo.Client
	records map[string]*kgo.Record
	lock    sync.Mutex
	failed  []string
}

var types = map[string]kgo.AckStatus{
	"ACCEPT": kgo.AckAccept, "RELEASE": kgo.AckRelease, "REJECT": kgo.AckReject, "RENEW": kgo.AckRenew,
}

var consumers = map[string]*consumer{}

func main() {
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		answer, err := run(strings.Fields(in.Text()))
		if err != nil {
			answer = "thrown " + strings.ReplaceAll(err.Error(), "\n", " ")
		}
		fmt.Println("answer " + answer)
	}
}

func run(words []string) (string, error) {
	if words[0] == "version" {
		return matrix.New("franz-go", "github.com/twmb/franz-go").Version, nil
	}
	if words[0] == "open" {
		return "ok", open(words)
	}
	it := consumers[words[1]]
	switch words[0] {
	case "poll":
		wait, err := strconv.Atoi(words[2])
		matrix.Check(err)
		return it.poll(time.Duration(wait) * time.Millisecond)
	case "acknowledge":
		for _, place := range words[3:] {
			it.records[place].Ack(types[words[2]])
		}
		return "ok", nil
	case "commit":
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		err := it.client.FlushAcks(ctx)
		it.lock.Lock()
		defer it.lock.Unlock()
		failed := strings.Join(it.failed, " ")
		it.failed = nil
		return failed, err
	case "close":
		delete(consumers, words[1])
		it.client.Close()
		return "ok", nil
	}
	return "", fmt.Errorf("no command %s", words[0])
}

func open(words []string) error {
	most, err := strconv.Atoi(words[5])
	if err != nil {
		return err
	}
	it := &consumer{records: map[string]*kgo.Record{}}
	options := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(words[2], ",")...), kgo.ShareGroup(words[3]), kgo.ConsumeTopics(words[4]),
		kgo.ShareMaxRecords(int32(most)), kgo.ClientID(words[1]),
		kgo.ShareAckCallback(func(_ *kgo.Client, results kgo.ShareAckResults) {
			it.lock.Lock()
			defer it.lock.Unlock()
			for _, each := range results {
				if each.Err != nil {
					it.failed = append(it.failed, fmt.Sprintf("%d,%s", each.Partition, named(each.Err)))
				}
			}
		}),
	}
	if words[7] == "record_limit" {
		options = append(options, kgo.ShareMaxRecordsStrict())
	}
	it.client, err = kgo.NewClient(options...)
	consumers[words[1]] = it
	return err
}

func named(err error) string {
	if known, ok := err.(*kerr.Error); ok {
		return known.Message
	}
	return strings.ReplaceAll(err.Error(), " ", "_")
}

func (it *consumer) poll(wait time.Duration) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	fetches := it.client.PollFetches(ctx)
	it.records = map[string]*kgo.Record{}
	found := []string{}
	for _, record := range fetches.Records() {
		place := fmt.Sprintf("%d,%d", record.Partition, record.Offset)
		it.records[place] = record
		found = append(found, fmt.Sprintf("%s,%d,%s", place, record.DeliveryCount(), record.Value))
	}
	if err := fetches.Err0(); err != nil && ctx.Err() == nil {
		return "", err
	}
	return strings.Join(found, " "), nil
}
