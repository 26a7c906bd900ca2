package inspect

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"tapedeck.dev/tapedeck/shared/archive"
	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
	"tapedeck.dev/tapedeck/shared/service"
	"tapedeck.dev/tapedeck/shared/store/storeurl"
)

// Exit statuses of verify.
const (
	exitFinding     = 1
	exitCouldNotRun = 2
)

// address are the flags that say which archive is meant.
type address struct {
	store     string
	topicsDir string
}

func (f *address) add(c *cobra.Command) {
	c.Flags().StringVar(&f.store, "store", "", "address of the archive: "+storeurl.Forms)
	c.Flags().StringVar(&f.topicsDir, "topics.dir", "topics", "folder of the segments below the address, as the archiver's topics.dir")
}

// with opens the archive for f.
func (f *address) with(ctx context.Context, run func(a *archive.Archive) error) (err error) {
	if f.store == "" {
		return fmt.Errorf("--store is missing; give %s", storeurl.Forms)
	}
	if f.topicsDir == "" {
		return errors.New("--topics.dir is empty; give the folder of the segments (default topics)")
	}
	st, err := storeurl.Open(ctx, f.store)
	if err != nil {
		return fmt.Errorf("--store: %w", err)
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	a := archive.Open(st, f.topicsDir)
	if err := a.CheckDir(ctx); err != nil {
		return err
	}
	return run(a)
}

// look are the flags of inspect and verify.
type look struct {
	address
	topics []string
	output string
}

func (f *look) add(c *cobra.Command) {
	f.address.add(c)
	c.Flags().StringArrayVar(&f.topics, "topic", nil, "only this topic (may be repeated; default: all)")
	c.Flags().StringVarP(&f.output, "output", "o", Table, "output format: json or table")
}

func (f *look) check() error {
	if f.output != JSON && f.output != Table {
		return fmt.Errorf("-o %q is neither json nor table", f.output)
	}
	return nil
}

// InspectCommand returns `inspect`: what an archive holds, per topic and partition. Exit status: 0, or 2 where it could
// not run.
func InspectCommand() *cobra.Command {
	var f look
	var show, until string
	c := &cobra.Command{
		Use:   "inspect --store URL",
		Short: "Show what an archive holds, per topic and partition",
		Long: `Show what an archive holds, per topic and partition: the first offset after what was skipped at the beginning, the next
offset, records, segments, bytes, timestamps, and every range that was lost or not archived. It reads index objects and
headers, no records. With --show topics: id, partitions, replication factor and configuration of each topic, as last recorded. With
--show groups: the positions of consumer groups, as last recorded at or before --until.`,
		Example: "  archiver inspect --store 's3://bucket/prefix?region=eu-central-1' -o json\n  archiver inspect --store file:///var/archive --show topics",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := f.check(); err != nil {
				return err
			}
			err := f.with(c.Context(), func(a *archive.Archive) error {
				switch show {
				case "partitions":
				case "topics":
					return Topics(c.Context(), c.OutOrStdout(), a, f.topics, f.output)
				case "groups":
					return Groups(c.Context(), c.OutOrStdout(), a, until, f.output)
				default:
					return fmt.Errorf("--show %q: give partitions, topics or groups", show)
				}
				return Inspect(c.Context(), c.OutOrStdout(), a, f.topics, f.output)
			})
			if err != nil {
				return &service.ExitError{Code: exitCouldNotRun, Err: err}
			}
			return nil
		},
	}
	f.add(c)
	c.Flags().StringVar(&show, "show", "partitions", "what to show: partitions, topics or groups")
	c.Flags().StringVar(&until, "until", "", "with --show groups: a time in RFC 3339 or in ms since 1970 (default: the newest)")
	return c
}

// VerifyCommand returns `verify`: reads every object of an archive. Exit status: 0 clean, 1 with a finding, 2 where it
// could not run.
func VerifyCommand() *cobra.Command {
	var f look
	c := &cobra.Command{
		Use:   "verify --store URL",
		Short: "Read an archive in full and prove that it is complete",
		Long: `Read every segment of an archive in full and check it: each offset from 0 is in exactly one segment, as a record or in a
skipped range with its class; every record reads back; headers, hashes, rows and index objects agree. Ranges that were
lost before they were archived are findings until they are accepted (archiver accept-gap).

Exit status: 0 clean, 1 with a finding, 2 where it could not run.`,
		Example: "  archiver verify --store file:///var/archive --topic trips",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := f.check(); err != nil {
				return &service.ExitError{Code: exitCouldNotRun, Err: err}
			}
			findings := 0
			err := f.with(c.Context(), func(a *archive.Archive) (err error) {
				findings, err = Verify(c.Context(), c.OutOrStdout(), a, f.topics, f.output)
				return err
			})
			switch {
			case err != nil:
				return &service.ExitError{Code: exitCouldNotRun, Err: err}
			case findings > 0:
				return &service.ExitError{Code: exitFinding}
			}
			return nil
		},
	}
	f.add(c)
	return c
}

// AcceptGapCommand returns `accept-gap`: records that a lost range is known. Exit status: 0, or 2 where it could not run.
func AcceptGapCommand() *cobra.Command {
	var f address
	var topic string
	var partition int32
	var from, to int64
	c := &cobra.Command{
		Use:     "accept-gap --store URL --topic TOPIC --partition N --from OFFSET --to OFFSET",
		Short:   "Record that a lost range of offsets is known, so that verify no longer reports it",
		Example: "  archiver accept-gap --store file:///var/archive --topic trips --partition 3 --from 100 --to 500",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			err := f.with(c.Context(), func(a *archive.Archive) error {
				return AcceptGap(c.Context(), a, record.TopicPartition{Topic: topic, Partition: partition}, from, to)
			})
			if err != nil {
				return &service.ExitError{Code: exitCouldNotRun, Err: err}
			}
			fmt.Fprintf(c.OutOrStdout(), "accepted: offsets [%d, %d) of %s-%d\n", from, to, topic, partition)
			return nil
		},
	}
	f.add(c)
	c.Flags().StringVar(&topic, "topic", "", "topic")
	c.Flags().Int32Var(&partition, "partition", -1, "partition")
	c.Flags().Int64Var(&from, "from", -1, "first lost offset, inclusive")
	c.Flags().Int64Var(&to, "to", -1, "end of the lost range, exclusive")
	for _, name := range []string{"topic", "partition", "from", "to"} {
		if err := c.MarkFlagRequired(name); err != nil {
			panic(err) // a flag of that name was added above
		}
	}
	return c
}

// AcceptGap accepts [from, to) of tp where the archive says that it was lost; a range that is not recorded as lost is an
// error, so that a typing error does not hide a later loss.
func AcceptGap(ctx context.Context, a *archive.Archive, tp record.TopicPartition, from, to int64) error {
	info, err := a.Inspect(ctx, tp)
	if err != nil {
		return err
	}
	for _, g := range info.Gaps {
		if g.Class == segment.Lost && g.From <= from && to <= g.To {
			return a.AcceptGap(ctx, tp, from, to)
		}
	}
	return fmt.Errorf("accept gap: offsets [%d, %d) of %s are not recorded as lost; archiver inspect shows the gaps", from, to, tp)
}
