// franz-login BOOTSTRAP MECHANISM USER PASSWORD TOPIC [CA]: log in with franz-go (TOKEN: with a delegation token's id and HMAC), over TLS with a CA's file, write one record, read one, print it.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

func mechanism(name, user, password string) sasl.Mechanism {
	switch name {
	case "SCRAM-SHA-256":
		return scram.Auth{User: user, Pass: password}.AsSha256Mechanism()
	case "SCRAM-SHA-512":
		return scram.Auth{User: user, Pass: password}.AsSha512Mechanism()
	case "TOKEN":
		return scram.Auth{User: user, Pass: password, IsToken: true}.AsSha256Mechanism()
	}
	return plain.Auth{User: user, Pass: password}.AsMechanism()
}

// trusting has the certificates that a file names, and no others.
func trusting(file string) (*tls.Config, error) {
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s has no certificate", file)
	}
	return &tls.Config{RootCAs: pool}, nil
}

func run(arguments []string) error {
	context, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	options := []kgo.Opt{
		kgo.SeedBrokers(arguments[0]),
		kgo.SASL(mechanism(arguments[1], arguments[2], arguments[3])),
		kgo.DefaultProduceTopic(arguments[4]),
		kgo.ConsumeTopics(arguments[4]),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.AllowAutoTopicCreation(),
		kgo.RecordRetries(3),
		kgo.RequestRetries(3),
	}
	if len(arguments) > 5 {
		config, err := trusting(arguments[5])
		if err != nil {
			return err
		}
		options = append(options, kgo.DialTLSConfig(config))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	defer client.Close()
	if err := client.Ping(context); err != nil {
		return err
	}
	if err := client.ProduceSync(context, kgo.StringRecord("by "+arguments[1])).FirstErr(); err != nil {
		return err
	}
	fetches := client.PollFetches(context)
	for _, each := range fetches.Errors() {
		return each.Err
	}
	fmt.Println(string(fetches.Records()[0].Value))
	return nil
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
