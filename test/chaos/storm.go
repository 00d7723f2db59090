package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// stay is how long a pod of the storm is there, or away, on average: two pods
	// come and two go a second for every hundred of them.
	stay = 25 * time.Second
	// longestTick is for storms of few pods, which come and go more often.
	longestTick = 300 * time.Millisecond
	// idleReads is how often a pod of the storm reads its volumes: they share two
	// processors.
	idleReads, busyReads = time.Second, 20 * time.Millisecond
)

// every is how often containers read their volumes with values.
func (w *world) every() time.Duration {
	if w.o.storm > 0 {
		return idleReads
	}
	return busyReads
}

// stormKinds are the kinds of pods with Secrets.
func stormKinds() []kind {
	return slices.DeleteFunc(slices.Clone(kinds), func(k kind) bool {
		return !slices.Contains([]string{"values", "beside", "parts", "nested", "environ", "secretjob"}, k.name)
	})
}

// stormAll lets pods with Secrets come and go, all of them at first, while podd is
// killed at random, objects change, and canaries are mounted in emptyDirs. It returns
// how often podd was killed.
func (w *world) stormAll(ctx context.Context) (int, error) {
	rng := choices(w.o.seed, 0)
	all, kills := w.stormPods(rng), w.killTimes(rng)
	began, killed := time.Now(), 0
	for _, wish := range all {
		if err := w.add(killed, wish, rng); err != nil {
			return killed, err
		}
	}
	for tick := 0; time.Since(began) < w.o.length; tick++ {
		if err := w.toggle(killed, all[rng.IntN(len(all))], rng); err != nil {
			return killed, err
		}
		if err := w.beside(killed, tick, rng); err != nil {
			return killed, err
		}
		if len(kills) > 0 && time.Since(began) > kills[0] {
			kills, killed = kills[1:], killed+1
			if err := w.killNow(ctx, killed, rng); err != nil {
				return killed, err
			}
		}
		if tick%10 == 0 {
			if err := w.never(ctx); err != nil {
				return killed, err
			}
		}
		if err := ctx.Err(); err != nil {
			return killed, err
		}
		time.Sleep(min(stay/time.Duration(len(all)), longestTick))
	}
	if len(kills) > 0 {
		return killed, fmt.Errorf("podd was killed %d times only: %v was too short", killed, w.o.length)
	}
	return killed, w.stormEnds(ctx, killed)
}

// stormPods are the pods, of all kinds alike.
func (w *world) stormPods(rng *rand.Rand) []*wish {
	all, of := make([]*wish, w.o.storm), stormKinds()
	for i := range all {
		k := of[i%len(of)]
		all[i] = &wish{kind: k, name: fmt.Sprintf("%s%d", k.name, i), port: w.node.Port + 5}
	}
	rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

// killTimes are when podd is killed, in order: none in the last tenth, so that the
// storm does not end before them.
func (w *world) killTimes(rng *rand.Rand) []time.Duration {
	at := make([]time.Duration, w.o.kills)
	for i := range at {
		at[i] = time.Duration(rng.Int64N(int64(w.o.length) * 9 / 10))
	}
	slices.Sort(at)
	return at
}

// toggle lets a pod go that is there, and come that is not.
func (w *world) toggle(step int, wish *wish, rng *rand.Rand) error {
	i := slices.Index(w.desired, wish)
	if i < 0 {
		return w.add(step, wish, rng)
	}
	w.say(step, "remove %s", wish.name)
	w.desired = slices.Delete(w.desired, i, i+1)
	_, err := w.podd.Delete(wish.file())
	return err
}

// beside is what happens besides pods: now and then an object changes, or a canary is
// mounted.
func (w *world) beside(step, tick int, rng *rand.Rand) error {
	switch {
	case tick%5 == 0:
		return w.changeObject(step, rng)
	case tick%7 == 0:
		what, err := w.bind(rng, func() error { return nil })
		w.say(step, "mount a canary in an emptyDir %s", what)
		return err
	}
	return nil
}

// killNow kills podd, and starts another, during whose absence pods come and go too.
func (w *world) killNow(ctx context.Context, step int, rng *rand.Rand) error {
	began := time.Now()
	err := w.without(ctx, rng, func() error {
		if len(w.desired) == 0 {
			return nil
		}
		return w.toggle(step, pick(rng, w.desired), rng)
	}, func() error { return w.podd.Signal(unix.SIGKILL) })
	w.say(step, "kill podd, away for %v", time.Since(began).Round(time.Millisecond))
	return err
}

// stormEnds waits until what is wanted runs, and tells how much there is of it.
func (w *world) stormEnds(ctx context.Context, step int) error {
	began := time.Now()
	if err := w.settle(ctx); err != nil {
		return err
	}
	w.say(step, "at rest after %v, with %d pods; mounts of podd's: %s", time.Since(began).Round(time.Millisecond), len(w.desired), w.mounted())
	return nil
}

// mounted counts what is mounted below podd's root directory, by file system.
func (w *world) mounted() string {
	counts := map[string]int{}
	for line := range strings.Lines(contents("/proc/self/mountinfo")) {
		fields := strings.Fields(line)
		if i := slices.Index(fields, "-"); i > 4 && len(fields) > i+1 && strings.HasPrefix(fields[4], w.node.Root()+"/pods/") {
			counts[fields[i+1]]++
		}
	}
	return fmt.Sprint(counts)
}
