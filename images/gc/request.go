package gc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"podd/internal/imageref"
	"podd/internal/pod"
)

// ask has Run call f, and waits for the answer until ctx ends.
func ask[T any](ctx context.Context, c *Collector, f func(context.Context) (T, error)) (answer T, err error) {
	type result struct {
		answer T
		err    error
	}
	answers := make(chan result, 1)
	request := func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		answer, err := f(ctx)
		answers <- result{answer, err}
	}
	select {
	case c.requests <- request:
	case <-ctx.Done():
		return answer, context.Cause(ctx)
	}
	select {
	case r := <-answers:
		return r.answer, r.err
	case <-ctx.Done():
		return answer, context.Cause(ctx)
	}
}

// Usage is an image and its use.
type Usage struct {
	*pod.Image
	// FirstSeen is when podd first saw the image, LastUsed when it last saw a container of it; zero
	// for not since podd started.
	FirstSeen, LastUsed time.Time
	// Kept says why the image stays; empty if it may be removed.
	Kept string
}

// Images returns the images of the runtime, the largest first. It waits for Run until ctx ends.
func (c *Collector) Images(ctx context.Context) ([]Usage, error) {
	return ask(ctx, c, func(ctx context.Context) ([]Usage, error) {
		in, err := c.observeNow(ctx)
		if err != nil && !errors.Is(err, errSourcesPending) {
			return nil, err
		}
		all := make([]Usage, 0, len(in.images))
		for _, i := range in.images {
			use := in.records[i.ID]
			all = append(all, Usage{i, use.firstSeen, use.lastUsed, in.keptBecause(i)})
		}
		slices.SortFunc(all, func(a, b Usage) int { return cmp.Or(cmp.Compare(b.Size, a.Size), cmp.Compare(a.ID, b.ID)) })
		return all, nil
	})
}

// Prune removes every image that nobody uses, except those younger than MinAge, as the kubelet does
// with a full disk, and returns those that it has removed. It waits for Run until ctx ends.
func (c *Collector) Prune(ctx context.Context) ([]*pod.Image, error) {
	return ask(ctx, c, func(ctx context.Context) (removed []*pod.Image, err error) {
		in, err := c.observeNow(ctx)
		if err != nil {
			return nil, err
		}
		removable, _, _ := in.removable()
		var errs []error
		for _, i := range removable {
			if err := c.remove(ctx, i, "space"); err != nil {
				errs = append(errs, err)
				continue
			}
			removed = append(removed, i)
		}
		return removed, errors.Join(errs...)
	})
}

// RemoveUnused is Prune, and returns how many images it has removed: none, without an error, until
// every source of pods is ready.
func (c *Collector) RemoveUnused(ctx context.Context) (removed int, err error) {
	all, err := c.Prune(ctx)
	if errors.Is(err, errSourcesPending) {
		err = nil
	}
	return len(all), err
}

// Remove removes one image, under all its names: by a name, or by its ID or the beginning of that. It
// refuses to remove one that somebody uses. It waits for Run until ctx ends.
func (c *Collector) Remove(ctx context.Context, name string) (*pod.Image, error) {
	return ask(ctx, c, func(ctx context.Context) (*pod.Image, error) {
		in, err := c.observeNow(ctx)
		if err != nil {
			return nil, err
		}
		i, err := in.named(name)
		if err != nil {
			return nil, err
		}
		if why := in.keptBecause(i); why != "" {
			return nil, fmt.Errorf("image %s is kept: %s", name, why)
		}
		return i, c.remove(ctx, i, "request")
	})
}

var errSourcesPending = errors.New("not all pods are known yet: nothing is removed before every source of pods has been read")

// observeNow observes for a request. With errSourcesPending, the input is valid.
func (c *Collector) observeNow(ctx context.Context) (input, error) {
	wanted, complete := c.cfg.WantedImages()
	in, err := c.observe(ctx, wanted, time.Now())
	if err == nil && !complete {
		err = errSourcesPending
	}
	return in, err
}

// keptBecause says why an image is not removed; empty if it may be. Its age does not matter.
func (in input) keptBecause(i *pod.Image) string {
	switch {
	case i.Pinned:
		return "it is pinned"
	case in.isNeeded(i):
		return "a container, a manifest or the image directory has it"
	case in.runtimeShared && !in.records[i.ID].usedByPodd:
		return "another agent uses this runtime, and it may be its"
	}
	return ""
}

// minPrefix is how many digits of an ID name an image at least.
const minPrefix = 6

// named returns the image of a name, an ID, or the beginning of an ID.
func (in input) named(name string) (*pod.Image, error) {
	full := imageref.Full(name)
	digits := strings.TrimPrefix(name, "sha256:")
	var found []*pod.Image
	for _, i := range in.images {
		id := strings.TrimPrefix(i.ID, "sha256:")
		if slices.Contains(i.Tags, name) || slices.Contains(i.Digests, name) || full != "" && (slices.Contains(i.Tags, full) || slices.Contains(i.Digests, full)) {
			return i, nil
		}
		if len(digits) >= minPrefix && strings.HasPrefix(id, digits) {
			found = append(found, i)
		}
	}
	switch len(found) {
	case 0:
		return nil, fmt.Errorf("%w: no image %s", pod.ErrNotFound, name)
	case 1:
		return found[0], nil
	}
	return nil, fmt.Errorf("%s is the beginning of %d IDs: give more of it", name, len(found))
}
