package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
)

func main() {
	least := flag.Float64("least", 90, "fail below this score, in percent")
	parallel := flag.Int("parallel", runtime.NumCPU(), "tests at a time")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: mutate [flags] [package directory ...]")
		flag.PrintDefaults()
	}
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, flag.Args(), *least, *parallel); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, dirs []string, least float64, parallel int) error {
	var all tally
	for _, t := range targets {
		if len(dirs) > 0 && !slices.Contains(dirs, t.dir) {
			continue
		}
		got, err := t.try(ctx, parallel)
		if err != nil {
			return fmt.Errorf("%s: %w", t.dir, err)
		}
		fmt.Printf("%-14s %s\n", t.dir, got)
		all.add(got)
	}
	if all.total() == 0 {
		return fmt.Errorf("no such package: %s", strings.Join(dirs, " "))
	}
	fmt.Printf("%-14s %s\n", "all", all)
	if score := all.score(); score < least {
		return fmt.Errorf("the tests notice %.1f %% of the changes, less than %g %%", score, least)
	}
	return nil
}

// tally is what became of the mutants.
type tally struct{ killed, survived, unreached int }

func (t *tally) add(o tally) {
	t.killed += o.killed
	t.survived += o.survived
	t.unreached += o.unreached
}

func (t tally) total() int { return t.killed + t.survived + t.unreached }

func (t tally) score() float64 { return 100 * float64(t.killed) / float64(t.total()) }

func (t tally) String() string {
	return fmt.Sprintf("%5.1f %%: %d of %d changes noticed, %d not, %d in lines that no test reaches",
		t.score(), t.killed, t.total(), t.survived, t.unreached)
}
