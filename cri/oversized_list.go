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
	// sizeHintTTL is how long podd remembers the pods that made a list too large: finding
	// them costs two calls for each pod.
	sizeHintTTL = time.Minute
	// maxLargestPods is how many of them are named.
	maxLargestPods = 3
)

// sizeHint caches the explanation of a list that is too large.
type sizeHint struct {
	mu   sync.Mutex
	text string    // guarded by mu
	at   time.Time // guarded by mu
}

// explainOversizedList adds what to do, and which pods are the largest, to the error of a list
// of everything (no labels) that exceeds the size of a message. No retry can fix that error.
func (c *Client) explainOversizedList(ctx context.Context, labels map[string]string, err error) error {
	failed, ok := errors.AsType[*callError](err)
	if !ok || labels != nil || failed.code != codes.ResourceExhausted || !strings.Contains(failed.message, "larger than max") {
		return err
	}
	c.sizeHint.mu.Lock()
	text, at := c.sizeHint.text, c.sizeHint.at
	c.sizeHint.mu.Unlock()
	if text == "" || time.Since(at) > sizeHintTTL {
		text = c.largestPods(context.WithoutCancel(ctx)) // the other list's failure ends ctx
		c.sizeHint.mu.Lock()
		c.sizeHint.text, c.sizeHint.at = text, time.Now()
		c.sizeHint.mu.Unlock()
	}
	return fmt.Errorf("%w: the runtime's list is larger than it may send, so the state of the pods is unknown; "+
		"raise max_send_message_size and max_recv_message_size of the runtime's gRPC server, or shorten the annotations of its largest pods%s", err, text)
}

// largestPods names those pods with a directory here that take the largest parts of the list.
// It queries pods one by one, because each fits.
func (c *Client) largestPods(ctx context.Context) string {
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
	for _, f := range all[:min(len(all), maxLargestPods)] {
		parts = append(parts, fmt.Sprintf("%s (%d KiB)", f.name, f.size>>10))
	}
	if len(parts) == 0 {
		return ""
	}
	return ": " + strings.Join(parts, ", ")
}
