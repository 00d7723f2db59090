package cri

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"podd/cri/spec"
)

const (
	// largeAgain is how long podd remembers the pods that made a list too large: finding
	// them costs two calls for each pod.
	largeAgain = time.Minute
	// largestNamed is how many of them are named.
	largestNamed = 3
)

// large caches the explanation of a list that is too large.
type large struct {
	mu   sync.Mutex
	text string    // guarded by mu
	at   time.Time // guarded by mu
}

// explainSize adds what to do, and which pods are the largest, to the error of a list of
// everything (no labels) that exceeds the size of a message. No retry can fix that error.
func (c *Client) explainSize(ctx context.Context, labels map[string]string, err error) error {
	failed, ok := errors.AsType[*callError](err)
	if !ok || labels != nil || failed.code != codes.ResourceExhausted || !strings.Contains(failed.message, "larger than max") {
		return err
	}
	c.large.mu.Lock()
	text, at := c.large.text, c.large.at
	c.large.mu.Unlock()
	if text == "" || time.Since(at) > largeAgain {
		text = c.largest(context.WithoutCancel(ctx)) // the other list's failure ends ctx
		c.large.mu.Lock()
		c.large.text, c.large.at = text, time.Now()
		c.large.mu.Unlock()
	}
	return fmt.Errorf("%w: the runtime's list is larger than it may send, so the state of the pods is unknown; "+
		"raise max_send_message_size and max_recv_message_size of the runtime's gRPC server, or shorten the annotations of its largest pods%s", err, text)
}

// largest names those pods with a directory here that take the largest parts of the list.
// It queries pods one by one, because each fits.
func (c *Client) largest(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	entries, err := os.ReadDir(c.spec.Dirs.Pods())
	if err != nil {
		return ""
	}
	type found struct {
		name string
		size int
	}
	var all []found
	for _, e := range entries {
		sandboxes, containers, err := c.lists(ctx, map[string]string{spec.LabelPodUID: e.Name()})
		if err != nil || len(sandboxes) == 0 {
			continue
		}
		f := found{name: sandboxes[0].Metadata.GetNamespace() + "/" + sandboxes[0].Metadata.GetName()}
		for _, s := range sandboxes {
			f.size += proto.Size(s)
		}
		for _, k := range containers {
			f.size += proto.Size(k)
		}
		all = append(all, f)
	}
	slices.SortFunc(all, func(a, b found) int { return cmp.Or(b.size-a.size, cmp.Compare(a.name, b.name)) })
	var parts []string
	for _, f := range all[:min(len(all), largestNamed)] {
		parts = append(parts, fmt.Sprintf("%s (%d KiB)", f.name, f.size>>10))
	}
	if len(parts) == 0 {
		return ""
	}
	return ": " + strings.Join(parts, ", ")
}
