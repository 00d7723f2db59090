package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"podd/test/e2e/testnode"
)

const (
	// crowdPatience is how long a crowd may take to come or to go: some five times what
	// 1,000 pods take.
	crowdPatience = 20 * time.Minute
	// crowdSteps is how many pods come at once: the node is to be quiet soon after.
	crowdSteps = 50
)

// crowds are the sizes at which one pod more is measured, in ascending order, each with
// its rows.
var crowds = []struct {
	pods     int
	one, own string
}{
	{50, rowMore50, rowOwn50},
	{300, rowMore300, rowOwn300},
	{1000, rowMore1000, rowOwn1000},
}

// crowd measures one pod more beside 50, 300 and 1,000 pods of podd's that do nothing: by
// raw calls and by podd, in turns, so that both have the same neighbours. podd's calls go
// through a relay, which tells podd's own share.
func (b *bench) crowd(ctx context.Context) (err error) {
	p, r, err := b.relayed(ctx)
	if err != nil {
		return err
	}
	whole := b.agents[colPodd]
	b.agents[colPodd] = p
	var crowd []string
	defer func() {
		b.agents[colPodd] = whole
		err = errors.Join(err, b.disperse(ctx, p, crowd), p.stop(), r.close())
	}()
	if err := b.warmUp(ctx, colPodd); err != nil {
		return fmt.Errorf("warm-up: %w", err)
	}
	for _, size := range crowds {
		if size.pods > b.plan.crowd {
			break
		}
		for len(crowd) < size.pods {
			var names []string
			for range min(crowdSteps, size.pods-len(crowd)) {
				names = append(names, b.name("crowd"))
			}
			crowd = append(crowd, names...)
			if _, _, _, err := b.startPods(ctx, colPodd, 0, names, plain); err != nil {
				return err
			}
		}
		if err := sleep(ctx, b.plan.settle); err != nil {
			return err
		}
		for round := range b.plan.more {
			b.say("  one pod beside %d %d/%d", size.pods, round+1, b.plan.more)
			if err := b.oneMore(ctx, r, size.one, size.own); err != nil {
				return err
			}
		}
	}
	return nil
}

// oneMore starts and ends a pod by raw calls, and then one of podd's.
func (b *bench) oneMore(ctx context.Context, r *relay, row, rowOwn string) error {
	name := []string{b.name("more-" + colFloor)}
	begin, first, raw, err := b.startPods(ctx, colFloor, 1, name, plain)
	if err != nil {
		return err
	}
	b.add(row, colFloor, first.Sub(begin).Seconds())
	if err := b.stopPods(ctx, colFloor, name, raw); err != nil {
		return err
	}
	name = []string{b.name("more-" + colPodd)}
	if begin, first, _, err = b.startPods(ctx, colPodd, 1, name, plain); err != nil {
		return err
	}
	if _, err := b.waitShown(ctx, colPodd, name[0]); err != nil {
		return err
	}
	own, _ := ownTime(r.since(begin), begin, first)
	b.add(row, colPodd, first.Sub(begin).Seconds())
	b.add(rowOwn, colPodd, own.Seconds())
	if _, err := b.agents[colPodd].remove(files(name)); err != nil {
		return err
	}
	return b.waitUnshown(ctx, name[0])
}

// waitUnshown returns when podd does not show a pod any more: nothing of it is left.
func (b *bench) waitUnshown(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return testnode.Poll(ctx, 20*time.Millisecond, func() error {
		pods, err := b.agents[colPodd].pods(ctx)
		if err != nil {
			return err
		}
		for i := range pods {
			if pods[i].Name == name+"-"+b.agents[colPodd].(*podd).NodeName() {
				return fmt.Errorf("%s is still there", name)
			}
		}
		return nil
	})
}

// disperse ends a crowd.
func (b *bench) disperse(ctx context.Context, p *podd, crowd []string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), crowdPatience)
	defer cancel()
	if _, err := p.remove(files(crowd)); err != nil {
		return err
	}
	return testnode.Poll(ctx, time.Second, func() error {
		n, err := b.sandboxes(ctx, true)
		if err == nil && n > 0 {
			err = fmt.Errorf("%d sandboxes are left", n)
		}
		return err
	})
}
