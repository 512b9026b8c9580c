// The workloads for franz-go: `franz JSON WORKLOAD` prints the result as one line of JSON.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const batchBytes = 16 * 1024

type work struct {
	Servers string
	Topic   string
	Records int
	Size    int
}

// cpu returns the seconds of all threads of this process, user and system.
func cpu() float64 {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		log.Fatal(err)
	}
	seconds := func(t syscall.Timeval) float64 { return float64(t.Sec) + float64(t.Usec)/1e6 }
	return seconds(used.Utime) + seconds(used.Stime)
}

// payload returns what the function of that name in common.py does.
func payload(number int, size int) []byte {
	text := []byte{}
	for len(text) < size {
		number = (number*1103515245 + 12345) & 0x7FFFFFFF
		text = fmt.Appendf(text, `{"id": %d, "name": "customer-%d", "amount": %d.%02d, "state": "active"},`,
			number, number%9973, number%499, number%100)
	}
	return text[:size]
}

// send is idempotent and waits for all replicas, as ours does; each result is looked at.
func send(given work) map[string]float64 {
	begin := time.Now()
	client, err := kgo.NewClient(
		kgo.SeedBrokers(given.Servers),
		kgo.DefaultProduceTopic(given.Topic),
		kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.ProducerBatchMaxBytes(batchBytes),
		kgo.ProducerLinger(0),
	)
	if err != nil {
		log.Fatal(err)
	}
	values := make([][]byte, 1000)
	for number := range values {
		values[number] = payload(number, given.Size)
	}
	var done atomic.Int64
	settle := func(_ *kgo.Record, err error) {
		if err != nil {
			log.Fatal(err)
		}
		done.Add(1)
	}
	client.Produce(context.Background(), &kgo.Record{Value: values[0]}, settle)
	client.Flush(context.Background())
	first, used := time.Now(), cpu()
	for number := range given.Records {
		client.Produce(context.Background(), &kgo.Record{Value: values[number%1000]}, settle)
	}
	client.Flush(context.Background())
	if done.Load() != int64(given.Records)+1 {
		log.Fatalf("%d instead of %d records", done.Load(), given.Records+1)
	}
	records := float64(given.Records)
	return map[string]float64{
		"records":    records,
		"seconds":    time.Since(begin).Seconds(),
		"rate_after": records / time.Since(first).Seconds(),
		"cpu_after":  (cpu() - used) * 1e6 / records,
	}
}

func main() {
	var given work
	if err := json.Unmarshal([]byte(os.Args[1]), &given); err != nil {
		log.Fatal(err)
	}
	if os.Args[2] != "send" {
		log.Fatalf("no workload %s", os.Args[2])
	}
	if err := json.NewEncoder(os.Stdout).Encode(send(given)); err != nil {
		log.Fatal(err)
	}
}
