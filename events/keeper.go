package events

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"podd/internal/checkpoint"
	"podd/internal/logonce"
)

const (
	// maxFile bounds the file of a Keeper, in bytes. A file that would grow beyond that is
	// written anew with the newest events, maxRewritten bytes of them at most.
	maxFile, maxRewritten = 4 << 20, 2 << 20
	// batchPeriod is the time between two writes.
	batchPeriod = 100 * time.Millisecond
	// repeatPeriod is the time between two writes of one event, which has only been repeated in
	// between, and between attempts to write to a disk that takes nothing.
	repeatPeriod = time.Minute
)

// Keeper keeps the events of a Recorder in a file, for the next podd. Create it with NewKeeper,
// and Run it once.
//
// The file has a line of JSON for each version of an event; the last line of an event counts.
// It is at most 4 MiB, and readable by root only: messages quote what pods say. A power failure
// may lose its end.
type Keeper struct {
	recorder *Recorder
	file     checkpoint.File[[]byte]
	log      *slog.Logger
	failure  logonce.Failure
	// written are the versions that the file has, by the event's namespace/name.
	written map[string]writtenEvent
	// size is the file's, in bytes; -1 if the file must be written anew.
	size int64
}

type writtenEvent struct {
	event *v1.Event // immutable: a version is a pointer
	at    time.Time
}

// savedEvent is a line of the file.
type savedEvent struct {
	Combined bool      `json:"combined,omitempty"`
	Event    *v1.Event `json:"event"`
}

// NewKeeper gives the Recorder, which must have no events yet, those that the file of that path
// has from an earlier podd. A file that cannot be read is told to the log and replaced.
func NewKeeper(recorder *Recorder, path string, log *slog.Logger) *Keeper {
	k := &Keeper{
		recorder: recorder, log: log, written: map[string]writtenEvent{}, size: -1,
		file: checkpoint.File[[]byte]{Path: path, Format: checkpoint.Format{Codec: checkpoint.Raw, OwnerOnly: true, MaxBytes: maxFile}},
	}
	content, err := k.file.Read()
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			log.Warn("cannot read the events from before podd's start: podd events begins with this start", "file", path, "error", err)
		}
		return k
	}
	saved, damaged := decodeEvents(content)
	if damaged == 0 { // the file can be continued
		k.size = int64(len(content))
	} else {
		log.Info("skipped damaged lines of the events from before podd's start", "file", path, "lines", damaged)
	}
	recorder.restore(saved)
	for _, e := range recorder.entries() {
		k.written[eventID(e.event)] = writtenEvent{event: e.event}
	}
	return k
}

// decodeEvents returns the last version of each event, the one that happened last at the end, and
// how many lines are none.
func decodeEvents(content []byte) (saved []savedEvent, damaged int) {
	latest := map[string]int{} // the index of an event's last line
	for line := range bytes.Lines(content) {
		var s savedEvent
		if !bytes.HasSuffix(line, []byte("\n")) || json.Unmarshal(line, &s) != nil || s.Event == nil ||
			s.Event.Name == "" || s.Event.Count < 1 || len(s.Event.Message) > MaxMessage {
			damaged++
			continue
		}
		if i, ok := latest[eventID(s.Event)]; ok {
			saved[i].Event = nil
		}
		latest[eventID(s.Event)] = len(saved)
		saved = append(saved, s)
	}
	kept := saved[:0]
	for _, s := range saved {
		if s.Event != nil {
			kept = append(kept, s)
		}
	}
	return kept, damaged
}

func eventID(e *v1.Event) string { return e.Namespace + "/" + e.Name }

// Run writes events until ctx ends, a batch at a time, and returns ctx's error. Close writes what is
// left then.
func (k *Keeper) Run(ctx context.Context) error {
	changes, stop := k.recorder.Watch()
	defer stop()
	for {
		var later <-chan time.Time
		waiting, err := k.save(false)
		if k.failure.IsNew(err) {
			k.log.Warn("cannot write events to disk: podd events forgets them when podd restarts", "file", k.file.Path, "error", err)
		}
		if waiting || err != nil {
			later = time.After(repeatPeriod)
		}
		next := changes
		if err != nil {
			next = nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-later:
		case <-next:
			select { // until there are more
			case <-time.After(batchPeriod):
			case <-ctx.Done():
			}
		}
	}
}

// Close writes what is left, once nothing records events any more.
func (k *Keeper) Close() {
	if _, err := k.save(true); k.failure.IsNew(err) {
		k.log.Warn("cannot write the last events to disk", "file", k.file.Path, "error", err)
	}
}

// save writes new events, and repeated ones whose turn it is, or all of them. waiting says that
// repeats are left.
func (k *Keeper) save(all bool) (waiting bool, err error) {
	now := time.Now()
	entries := k.recorder.entries()
	current, fresh := make(map[string]bool, len(entries)), []*entry{}
	for i := range entries {
		e := &entries[i]
		id := eventID(e.event)
		current[id] = true
		switch last := k.written[id]; {
		case last.event == e.event:
		case last.event != nil && now.Sub(last.at) < repeatPeriod && !all:
			waiting = true
		default:
			fresh = append(fresh, e)
		}
	}
	for id := range k.written {
		if !current[id] {
			delete(k.written, id)
		}
	}
	if len(fresh) == 0 {
		return waiting, nil
	}
	if err := k.write(fresh, entries); err != nil {
		k.size = -1 // the file may end in half a line
		return waiting, err
	}
	for _, e := range fresh {
		k.written[eventID(e.event)] = writtenEvent{e.event, now}
	}
	return waiting, nil
}

// write appends the fresh ones of the entries, or writes the file anew if it would grow too large.
func (k *Keeper) write(fresh []*entry, entries []entry) error {
	var batch bytes.Buffer
	for _, e := range fresh {
		if k.size < 0 || k.size+int64(batch.Len()) > maxFile {
			break
		}
		if err := encodeEvent(&batch, e); err != nil {
			return err
		}
	}
	if k.size < 0 || k.size+int64(batch.Len()) > maxFile {
		return k.rewrite(entries)
	}
	return k.append(batch.Bytes())
}

func encodeEvent(to *bytes.Buffer, e *entry) error {
	enc := json.NewEncoder(to) // ends the line
	enc.SetEscapeHTML(false)
	return enc.Encode(savedEvent{e.combined, e.event})
}

// rewrite replaces the file by the newest of the events, which are in order.
func (k *Keeper) rewrite(entries []entry) error {
	lines, size := make([][]byte, 0, len(entries)), 0
	for i := len(entries) - 1; i >= 0; i-- {
		var line bytes.Buffer
		if err := encodeEvent(&line, &entries[i]); err != nil {
			return err
		}
		if size += line.Len(); size > maxRewritten {
			break
		}
		lines = append(lines, line.Bytes())
	}
	content := make([]byte, 0, size)
	for i := len(lines) - 1; i >= 0; i-- {
		content = append(content, lines[i]...)
	}
	if err := k.file.Write(content); err != nil {
		return err
	}
	k.size = int64(len(content))
	return nil
}

// append adds lines to the file.
func (k *Keeper) append(lines []byte) error {
	f, err := os.OpenFile(k.file.Path, os.O_WRONLY|os.O_APPEND|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	n, err := f.Write(lines)
	k.size += int64(n)
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("append events: %w", err)
	}
	return nil
}
