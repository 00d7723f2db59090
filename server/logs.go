package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
	"podd/podlogs"
)

// WholeLines is an option of podd's own. With it, tailLines counts the lines that the container
// wrote. Without it, tailLines counts the lines of the file, as in the kubelet, which is what
// its clients expect.
const WholeLines = "podd-whole-lines"

// containerLogs is the kubelet's /containerLogs/{namespace}/{pod}/{container}, with the
// options of v1.PodLogOptions as its query.
func (s *Server) containerLogs(w http.ResponseWriter, r *http.Request) {
	options, previous, streams, err := logOptions(r.URL.Query(), time.Now())
	if err != nil {
		writeError(w, http.StatusUnprocessableEntity, err.Error())
		return
	}
	p, ok := s.requestedPod(w, r)
	if !ok {
		return
	}
	name := r.PathValue("container")
	if c, _ := pod.ContainerSpec(&p.Spec, name); c == nil {
		http.Error(w, fmt.Sprintf("container %q not found in pod %q", name, p.Name), http.StatusNotFound)
		return
	}
	runtime, err := s.attachedRuntime()
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	id, err := logContainerID(p, name, previous)
	if err != nil && !previous {
		if now, failure := runtime.RunningContainerID(r.Context(), p, name); failure == nil {
			id, err = now, nil // the container runs, but its status does not say so yet
		}
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	log, err := runtime.Log(r.Context(), p, id)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if options.Follow {
		select {
		case s.follows <- struct{}{}:
			defer func() { <-s.follows }()
		default:
			http.Error(w, fmt.Sprintf("%d logs are being followed: end some", maxFollowers), http.StatusServiceUnavailable)
			return
		}
	}
	opened, err := podlogs.Open(log, options, &s.logDirs)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		http.Error(w, fmt.Sprintf("the log of container %q in pod %q is not there any more", name, p.Name), http.StatusNotFound)
		return
	case err != nil:
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer opened.Close()
	s.sendLog(w, r, opened, options.Follow, streams)
}

// sendLog writes a log. A client that follows one gets the header at once, and may then wait
// for a line for any time.
func (s *Server) sendLog(w http.ResponseWriter, r *http.Request, log *podlogs.Reader, follow bool, streams string) {
	out := &deadlineWriter{ResponseWriter: w, s: s, each: follow}
	w.Header().Set("Content-Type", "text/plain")
	var stdout, stderr io.Writer = out, out
	switch streams {
	case v1.LogStreamStdout:
		stderr = nil
	case v1.LogStreamStderr:
		stdout = nil
	}
	if follow {
		if _, err := out.Write(nil); err != nil {
			return
		}
		defer func() { _ = s.setWriteDeadline(w, writeTimeout) }() // for the end of the response
	}
	err := log.Copy(r.Context(), stdout, stderr)
	if err == nil || r.Context().Err() != nil && !errors.Is(context.Cause(r.Context()), errStopping) {
		return // the log has ended, or the client has gone
	}
	s.log.Debug("a log was broken off", "path", r.URL.Path, "error", err)
	panic(http.ErrAbortHandler) // so that the client does not take a part for the whole
}

// writeError answers in JSON, as the kubelet does for a bad query.
func writeError(w http.ResponseWriter, code int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(map[string]string{"message": message})
}

func (s *Server) podNamed(namespace, name string) *v1.Pod {
	for _, p := range s.config.Pods.Pods() {
		if p.Namespace == namespace && p.Name == name {
			return p
		}
	}
	return nil
}

// logOptions parses a query. Upstream's rules are in pkg/apis/core/validation
// (ValidatePodLogOptions).
func logOptions(q url.Values, now time.Time) (o podlogs.Options, previous bool, streams string, err error) {
	o = podlogs.WholeLog
	parse := func(key string, to func(text string) error) {
		if text := q.Get(key); text != "" && err == nil {
			if wrong := to(text); wrong != nil {
				err = fmt.Errorf("%s: %q %w", key, text, wrong)
			}
		}
	}
	flag := func(to *bool) func(string) error {
		return func(text string) (err error) {
			if *to, err = strconv.ParseBool(text); err != nil {
				return errors.New("is neither true nor false")
			}
			return nil
		}
	}
	number := func(least int64, to func(n int64)) func(string) error {
		return func(text string) error {
			n, err := strconv.ParseInt(text, 10, 64)
			if err != nil || n < least {
				return fmt.Errorf("is not an integer of at least %d", least)
			}
			to(n)
			return nil
		}
	}
	parse("follow", flag(&o.Follow))
	parse("previous", flag(&previous))
	parse("timestamps", flag(&o.Timestamps))
	parse(WholeLines, flag(&o.WholeLines))
	parse("tailLines", number(0, func(n int64) { o.Tail = n }))
	parse("limitBytes", number(1, func(n int64) { o.LimitBytes = n }))
	parse("sinceSeconds", number(1, func(n int64) { o.Since = now.Add(-time.Duration(min(n, int64(now.Unix()))) * time.Second) }))
	parse("sinceTime", func(text string) error {
		at, err := time.Parse(time.RFC3339, text)
		if err != nil {
			return errors.New("is not a time as in RFC 3339")
		}
		o.Since = at
		return nil
	})
	if err == nil && q.Get("sinceTime") != "" && q.Get("sinceSeconds") != "" {
		err = errors.New("at most one of `sinceTime` or `sinceSeconds` may be specified")
	}
	parse("stream", func(text string) error {
		switch text {
		case v1.LogStreamAll, v1.LogStreamStdout, v1.LogStreamStderr:
			streams = text
			return nil
		}
		return errors.New("is not All, Stdout or Stderr")
	})
	if err == nil && o.Tail >= 0 && streams != "" && streams != v1.LogStreamAll {
		err = errors.New("`tailLines` and specific `stream` are mutually exclusive for now")
	}
	return o, previous, streams, err
}

// logContainerID returns the ID of the container to read: the newest container of that name
// that has a log, or with previous the one before. The errors are the kubelet's
// (validateContainerLogStatus).
func logContainerID(p *v1.Pod, name string, previous bool) (id string, err error) {
	c := pod.ContainerStatus(&p.Status, name)
	if c == nil {
		return "", fmt.Errorf("container %q in pod %q is not available", name, p.Name)
	}
	last := c.LastTerminationState.Terminated
	switch now := c.State; {
	case previous && (last == nil || last.ContainerID == ""):
		return "", fmt.Errorf("previous terminated container %q in pod %q not found", name, p.Name)
	case previous:
		return pod.RuntimeID(last.ContainerID), nil
	case now.Running != nil && c.ContainerID != "":
		return pod.RuntimeID(c.ContainerID), nil
	case now.Terminated != nil && now.Terminated.ContainerID != "":
		return pod.RuntimeID(now.Terminated.ContainerID), nil
	case last != nil && last.ContainerID != "":
		return pod.RuntimeID(last.ContainerID), nil
	case now.Terminated != nil:
		return "", fmt.Errorf("container %q in pod %q is terminated", name, p.Name)
	case now.Waiting != nil:
		why := now.Waiting.Reason
		switch why {
		case pod.ReasonErrImagePull:
			why = "image can't be pulled"
		case pod.ReasonImagePullBackOff:
			why = "trying and failing to pull image"
		}
		return "", fmt.Errorf("container %q in pod %q is waiting to start: %s", name, p.Name, why)
	}
	return "", fmt.Errorf("container %q in pod %q is waiting to start - no logs yet", name, p.Name)
}

// deadlineWriter is a response for a client that may read slowly. Each write has a deadline of its
// own. With each set, every write is flushed, and no deadline runs between writes.
type deadlineWriter struct {
	http.ResponseWriter
	s    *Server
	each bool
}

// Write implements io.Writer.
func (f *deadlineWriter) Write(p []byte) (int, error) {
	if err := f.s.setWriteDeadline(f.ResponseWriter, writeTimeout); err != nil {
		return 0, err
	}
	n, err := f.ResponseWriter.Write(p)
	if err == nil && f.each {
		err = errors.Join(http.NewResponseController(f.ResponseWriter).Flush(), f.s.setWriteDeadline(f.ResponseWriter, 0))
	}
	return n, err
}

// Unwrap serves http.ResponseController.
func (f *deadlineWriter) Unwrap() http.ResponseWriter { return f.ResponseWriter }
