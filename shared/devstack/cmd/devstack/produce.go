package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"tapedeck.dev/tapedeck/shared/devstack/trips"
	"tapedeck.dev/tapedeck/shared/kafka"
)

func produceCommand() *cobra.Command {
	var (
		o      trips.ProduceOptions
		g      trips.GenerateOptions
		csv    trips.CSVOptions
		start  string
		output string
	)
	c := &cobra.Command{
		Use:   "produce",
		Short: "Produce seeded trips, or those of a CSV file, to a topic",
		Long: `Produces trips in Avro with Confluent's wire format; the schema is registered under <topic>-value. The same seed (or file) gives
the same records. Event times are out of order, and a share of the trips is late beyond 20 s.`,
		Example: `  devstack produce --bootstrap 127.0.0.1:19092 --registry http://127.0.0.1:18081 --topic trips --count 10000 --seed 2
  devstack produce --bootstrap 127.0.0.1:19092 --registry http://127.0.0.1:18081 --topic taxis --csv trips.csv`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			if o.Bootstrap == "" || o.RegistryURL == "" || o.Topic == "" {
				return errors.New("--bootstrap, --registry and --topic are needed")
			}
			if csv.Path != "" {
				src, err := trips.ReadCSV(csv)
				if err != nil {
					return err
				}
				o.Source = src
			} else {
				at, err := startTime(ctx, start, o.Bootstrap, o.Topic)
				if err != nil {
					return err
				}
				g.Start = at
				o.Source = trips.Generate(g)
			}
			s, err := trips.Produce(ctx, o)
			if err != nil {
				return err
			}
			if output == "json" {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(s)
			}
			w := cmd.OutOrStdout()
			fmt.Fprintf(w, "%d records to %s (schema id %d), %d of them to close windows\n", s.Records, s.Topic, s.SchemaID, s.Flushes)
			for p, n := range s.ByPartition {
				fmt.Fprintf(w, "  partition %d: %d\n", p, n)
			}
			fmt.Fprintf(w, "event times %s to %s\n", utc(s.FirstMs), utc(s.LastMs))
			return nil
		},
	}
	f := c.Flags()
	f.StringVar(&o.Bootstrap, "bootstrap", "", "Kafka, host:port")
	f.StringVar(&o.RegistryURL, "registry", "", "URL of the schema registry")
	f.StringVar(&o.Topic, "topic", "trips", "topic; made if it is not there")
	f.Int32Var(&o.Partitions, "partitions", 0, "partitions of the topic (0: as it is; 4 for a new one)")
	f.Float64Var(&o.Rate, "rate", 0, "records per second (0: as fast as it goes)")
	f.DurationVar(&o.FlushAhead, "flush-ahead", 60*time.Second, "end each partition with a record this far ahead in event time, so that windows close (0: do not)")
	f.IntVar(&g.Count, "count", 10_000, "number of trips")
	f.Uint64Var(&g.Seed, "seed", 1, "seed")
	f.IntVar(&g.Users, "users", trips.DefaultUsers, "number of users")
	f.DurationVar(&g.Interval, "interval", trips.DefaultInterval, "event time between trips")
	f.DurationVar(&g.Disorder, "disorder", trips.DefaultDisorder, "bound of the disorder of event times")
	f.Float64Var(&g.LateShare, "late-share", trips.DefaultLateShare, "share of trips that are late (negative: none)")
	f.StringVar(&start, "start", "auto", "arrival of the first trip, RFC 3339; auto: after the newest record of the topic, else "+trips.DefaultStart.Format(time.RFC3339))
	f.StringVar(&csv.Path, "csv", "", "take the trips of this file instead")
	f.BoolVar(&csv.FileOrder, "file-order", false, "with --csv: keep the order of the file instead of sorting by arrival")
	f.StringVarP(&output, "output", "o", "text", "text or json")
	return c
}

func utc(ms int64) string { return time.UnixMilli(ms).UTC().Format(time.RFC3339) }

// startTime finds where to start, so that a second run does not consist of late trips only.
func startTime(ctx context.Context, start, bootstrap, topic string) (time.Time, error) {
	if start != "auto" {
		at, err := time.Parse(time.RFC3339, start)
		if err != nil {
			return at, fmt.Errorf("--start: %w", err)
		}
		return at, nil
	}
	newest, err := newestTimestamp(ctx, kafka.Client{Bootstrap: bootstrap, ClientID: "tapedeck-devstack"}, topic)
	if err != nil {
		return time.Time{}, err
	}
	if newest < 0 {
		return trips.DefaultStart, nil
	}
	return time.UnixMilli(newest).UTC().Truncate(time.Second).Add(time.Second), nil
}

// newestTimestamp returns the greatest timestamp among the last records of the topic's partitions, −1 where there is none.
func newestTimestamp(ctx context.Context, client kafka.Client, topic string) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	a, err := kafka.NewAdmin(client)
	if err != nil {
		return 0, err
	}
	defer a.Close()
	if err := a.Ping(ctx); err != nil {
		return 0, err
	}
	ts, err := a.Topics(ctx, topic)
	if err != nil {
		return 0, err
	}
	var tps []kafka.TP
	for p := range ts[topic].Partitions {
		tps = append(tps, kafka.TP{Topic: topic, Partition: p})
	}
	if len(tps) == 0 {
		return -1, nil
	}
	ranges, err := a.Offsets(ctx, tps)
	if err != nil {
		return 0, err
	}
	c, err := kafka.NewConsumer(kafka.ConsumerConfig{Client: client})
	if err != nil {
		return 0, err
	}
	defer func() { _ = c.Close() }()
	waiting := map[kafka.TP]bool{}
	for _, tp := range tps {
		if r := ranges[tp]; r.End > r.Start {
			waiting[tp] = true
			if err := c.Start(kafka.Position{TP: tp, Offset: r.End - 1, LeaderEpoch: -1}); err != nil {
				return 0, err
			}
		}
	}
	newest := int64(-1)
	for len(waiting) > 0 {
		evs, err := c.Poll(ctx, time.Second)
		if err != nil {
			return 0, fmt.Errorf("read the last records of %s: %w", topic, err)
		}
		for _, ev := range evs {
			switch ev := ev.(type) {
			case kafka.Batch:
				for _, r := range ev.Records {
					newest = max(newest, r.Timestamp)
				}
			case kafka.EndOfPartition:
				delete(waiting, ev.TP)
			case kafka.OutOfRange: // deleted meanwhile
				delete(waiting, ev.TP)
			case kafka.PartitionError:
				return 0, ev.Err
			}
		}
	}
	return newest, nil
}
