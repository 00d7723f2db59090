package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
)

// kubeletLog reads the events off the kubelet's log: without an apiserver that
// is where they are told, all of them, repeats included.
type kubeletLog struct {
	path string

	mu     sync.Mutex
	offset int64
	rest   []byte
	byPod  map[string][]Event
}

// events are those of one pod so far, each once, by first occurrence.
func (l *kubeletLog) events(pod string) ([]Event, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.readLocked(); err != nil {
		return nil, err
	}
	return slices.Clone(l.byPod[pod]), nil
}

// read takes in what was written so far.
func (l *kubeletLog) read() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.readLocked()
}

// begin says that the log starts anew; the kubelet must not run.
func (l *kubeletLog) begin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.offset, l.rest = 0, nil
	_ = os.Truncate(l.path, 0) // the first time there is none
}

func (l *kubeletLog) readLocked() error {
	f, err := os.Open(l.path)
	if err != nil {
		return fmt.Errorf("read the kubelet's log: %w", err)
	}
	defer func() { _ = f.Close() }()
	if _, err := f.Seek(l.offset, io.SeekStart); err != nil {
		return err
	}
	text, err := io.ReadAll(f)
	if err != nil {
		return fmt.Errorf("read the kubelet's log: %w", err)
	}
	l.offset += int64(len(text))
	l.rest = append(l.rest, text...)
	for {
		line, rest, found := bytes.Cut(l.rest, []byte("\n"))
		if !found {
			return nil
		}
		l.rest = rest
		l.lineLocked(line)
	}
}

func (l *kubeletLog) lineLocked(line []byte) {
	if !bytes.Contains(line, []byte(`"Event occurred"`)) {
		return
	}
	var entry struct {
		Msg    string `json:"msg"`
		Object struct{ Name, Namespace string }
		Kind   string `json:"kind"`

		FieldPath, Type, Reason, Message string
	}
	if json.Unmarshal(line, &entry) != nil || entry.Kind != "Pod" {
		return
	}
	if l.byPod == nil {
		l.byPod = map[string][]Event{}
	}
	pod := entry.Object.Name
	l.byPod[pod] = gather(append(l.byPod[pod], Event{entry.FieldPath, entry.Type, entry.Reason, entry.Message, 1}))
}
