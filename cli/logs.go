package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
	"podd/server"
)

// LogsOptions are the options of podd logs. They are kubectl's.
type LogsOptions struct {
	StateDir  string
	Namespace string
	// Pods are names as given on the command line.
	Pods []string
	// Container is one of each pod's containers; empty means the default one, or all with
	// AllContainers.
	Container     string
	AllContainers bool

	Follow, Previous, Timestamps, Prefix, IgnoreErrors bool
	// Tail is the number of last lines to print; negative for all.
	Tail  int64
	Since Since
	// LimitBytes bounds the bytes of each log; 0 means no limit.
	LimitBytes int64
	// MaxRequests is the maximum number of logs to follow at a time.
	MaxRequests int
}

// defaultContainerAnnotation names the container that kubectl uses if the user names none.
const defaultContainerAnnotation = "kubectl.kubernetes.io/default-container"

// logRef is one container's log.
type logRef struct {
	pod       *v1.Pod
	container string
}

// Run prints the logs of containers to out, and all other messages to errs.
func (o *LogsOptions) Run(ctx context.Context, out, errs io.Writer) error {
	query, err := o.query()
	if err != nil {
		return err
	}
	c := newClient(o.StateDir)
	all, err := c.listPods(ctx)
	if err != nil {
		return err
	}
	logs, err := o.choose(all, errs)
	if err != nil {
		return err
	}
	if o.Follow && len(logs) > o.MaxRequests {
		return fmt.Errorf("you are attempting to follow %d log streams, but maximum allowed concurrency is %d, use --max-log-requests to increase the limit", len(logs), o.MaxRequests)
	}
	printer := &logPrinter{out: out}
	one := func(l logRef) error {
		prefix := ""
		if o.Prefix {
			prefix = fmt.Sprintf("[pod/%s/%s] ", l.pod.Name, l.container)
		}
		err := c.log(ctx, l, query, func(body io.Reader) error { return printer.copy(body, prefix, len(logs) > 1 && o.Follow || o.Prefix) })
		if err == nil || ctx.Err() != nil {
			return nil
		}
		if o.IgnoreErrors {
			printer.note(errs, fmt.Sprintf("error: %v\n", err))
			return nil
		}
		return err
	}
	if !o.Follow {
		for _, l := range logs {
			if err := one(l); err != nil {
				return err
			}
		}
		return nil
	}
	return runConcurrently(logs, one)
}

// runConcurrently calls one for all logs concurrently, and returns once all calls have returned.
func runConcurrently(logs []logRef, one func(logRef) error) error {
	failures := make([]error, len(logs))
	var all sync.WaitGroup
	for i, l := range logs {
		all.Go(func() { failures[i] = one(l) })
	}
	all.Wait()
	return errors.Join(failures...)
}

// query returns the query of the request for each log.
func (o *LogsOptions) query() (url.Values, error) {
	q := url.Values{}
	for name, set := range map[string]bool{"follow": o.Follow, "previous": o.Previous, "timestamps": o.Timestamps} {
		if set {
			q.Set(name, "true")
		}
	}
	switch _, err := o.Since.begin(time.Now()); {
	case err != nil:
		return nil, err
	case o.Since.Ago > 0:
		q.Set("sinceSeconds", strconv.FormatInt(int64(math.Ceil(o.Since.Ago.Seconds())), 10))
	case o.Since.Time != "":
		q.Set("sinceTime", o.Since.Time)
	}
	if o.LimitBytes < 0 {
		return nil, UsageErrorf("--limit-bytes=%d: give a number of bytes", o.LimitBytes)
	}
	if o.LimitBytes > 0 {
		q.Set("limitBytes", strconv.FormatInt(o.LimitBytes, 10))
	}
	if o.Tail >= 0 {
		q.Set("tailLines", strconv.FormatInt(o.Tail, 10))
		q.Set(server.WholeLines, "true")
	}
	return q, nil
}

// choose returns the requested logs.
func (o *LogsOptions) choose(all server.Listing, errs io.Writer) (logs []logRef, err error) {
	names, err := parsePodNames(o.Pods, o.Namespace)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		info, err := name.selectOne(all)
		if err != nil {
			return nil, err
		}
		containers, err := o.selectContainers(info, errs)
		if err != nil {
			return nil, err
		}
		for _, c := range containers {
			logs = append(logs, logRef{info.Pod, c})
		}
	}
	return logs, nil
}

func (o *LogsOptions) selectContainers(info server.PodInfo, errs io.Writer) ([]string, error) {
	var names []string
	for c := range pod.ContainerSpecs(&info.Pod.Spec) {
		names = append(names, c.Name)
	}
	switch {
	case o.AllContainers:
		return names, nil
	case o.Container != "":
		return []string{o.Container}, checkContainer(info, o.Container)
	}
	chosen := defaultContainer(info.Pod)
	if len(names) > 1 && info.Pod.Annotations[defaultContainerAnnotation] == "" {
		_, _ = fmt.Fprintf(errs, "Defaulted container %q out of: %s\n", printable(chosen), printable(strings.Join(names, ", ")))
	}
	return []string{chosen}, nil
}

// defaultContainer returns the container to use if the user names none, by kubectl's rule.
func defaultContainer(p *v1.Pod) string {
	if name := p.Annotations[defaultContainerAnnotation]; name != "" {
		if c, _ := pod.ContainerSpec(&p.Spec, name); c != nil {
			return name
		}
	}
	return p.Spec.Containers[0].Name
}

// log calls read with the log of a container.
func (c *client) log(ctx context.Context, l logRef, query url.Values, read func(io.Reader) error) error {
	path := fmt.Sprintf("/containerLogs/%s/%s/%s", url.PathEscape(l.pod.Namespace), url.PathEscape(l.pod.Name), url.PathEscape(l.container))
	resp, err := c.do(ctx, http.MethodGet, path, query)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1024)) // for the error message
		return errors.New(strings.TrimSpace(string(text)))
	}
	if err := read(resp.Body); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) {
			err = &ExitError{ExitUnavailable, fmt.Errorf("the log of %s/%s is not complete: the daemon at %s has stopped, or cannot read it any more", l.pod.Name, l.container, c.socket)}
		}
		return err
	}
	return nil
}

// logPrinter writes several logs at once, each line as a whole.
type logPrinter struct {
	mu  sync.Mutex
	out io.Writer
}

func (p *logPrinter) note(to io.Writer, text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, _ = io.WriteString(to, text)
}

// copy writes a log unchanged, or with lines set, line by line with a prefix. It writes a line
// that is longer than the buffer in parts.
func (p *logPrinter) copy(log io.Reader, prefix string, lines bool) error {
	if !lines {
		_, err := io.Copy(p.out, log)
		return err
	}
	in := bufio.NewReaderSize(log, 64<<10)
	begins := true
	for {
		part, err := in.ReadSlice('\n')
		if len(part) > 0 {
			text := string(part)
			if begins {
				text = prefix + text
			}
			begins = strings.HasSuffix(text, "\n")
			p.mu.Lock()
			_, writeErr := io.WriteString(p.out, text)
			p.mu.Unlock()
			if writeErr != nil {
				return writeErr
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil && !errors.Is(err, bufio.ErrBufferFull):
			return err
		}
	}
}
