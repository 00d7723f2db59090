package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"time"
)

func main() {
	least := flag.Float64("least", 90, "fail below this score of all packages, in percent")
	floor := flag.Float64("floor", 85, "fail below this score of any package, in percent")
	parallel := flag.Int("parallel", runtime.NumCPU(), "tests at a time")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: mutate [flags] [package directory ...]")
		flag.PrintDefaults()
	}
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, flag.Args(), bars{*least, *floor}, *parallel); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

// bars are the least scores, in percent: of all packages together, and of each.
type bars struct{ all, each float64 }

func run(ctx context.Context, dirs []string, least bars, parallel int) error {
	var all tally
	var low []error
	var table []string
	for _, t := range targets {
		if len(dirs) > 0 && !slices.Contains(dirs, t.dir) {
			continue
		}
		begun := time.Now()
		got, err := t.try(ctx, parallel)
		if err != nil {
			return fmt.Errorf("%s: %w", t.dir, err)
		}
		row := fmt.Sprintf("%-18s %s, %v", t.dir, got, time.Since(begun).Round(time.Second))
		fmt.Println(row)
		table = append(table, row)
		all.add(got)
		if score := got.score(); score < least.each {
			low = append(low, fmt.Errorf("the tests of %s notice %.1f %% of the changes, less than %g %%", t.dir, score, least.each))
		}
	}
	if all.total() == 0 {
		return fmt.Errorf("no such package: %s", strings.Join(dirs, " "))
	}
	if len(table) > 1 {
		fmt.Printf("\n%s\n%-18s %s\n", strings.Join(table, "\n"), "all", all)
	}
	if score := all.score(); score < least.all {
		low = append(low, fmt.Errorf("the tests notice %.1f %% of all changes, less than %g %%", score, least.all))
	}
	return errors.Join(low...)
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
