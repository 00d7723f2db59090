package systemd

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/coreos/go-systemd/v22/journal"
	"golang.org/x/sys/unix"
)

// journalSocket is where the journal takes entries (systemd.io/JOURNAL_NATIVE_PROTOCOL).
const journalSocket = "/run/systemd/journal/socket"

// NewJournalHandler returns a log handler that writes to the journal, if that is where stderr
// leads to; else nil. An entry's MESSAGE is the line that newText makes, without the time, which
// the journal has. What the line says of a pod is in fields, too: PODD_POD, PODD_NAMESPACE,
// PODD_CONTAINER, PODD_UID and PODD_REASON. A static pod's name in its manifest is a second
// PODD_POD: its own name ends in that of this node.
//
// A line that the journal does not take (it is larger than a datagram, the journal is behind, or
// gone) goes to stderr, as without this handler.
func NewJournalHandler(stderr *os.File, nodeName string, newText func(io.Writer, *slog.HandlerOptions) slog.Handler, level slog.Leveler) slog.Handler {
	if isJournal, err := journal.StderrIsJournalStream(); err != nil || !isJournal || stderr != os.Stderr {
		return nil
	}
	conn, err := newJournalConn(journalSocket)
	if err != nil {
		return nil
	}
	return newJournalHandler(conn, stderr, nodeName, newText, level)
}

// journalConn sends a datagram to the journal with each Write, and never waits: the journal may be
// behind, and then stderr is what holds podd back. It is not connected: the journal's socket may be
// made anew.
type journalConn struct {
	fd int
	to *unix.SockaddrUnix
}

func newJournalConn(path string) (journalConn, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	return journalConn{fd, &unix.SockaddrUnix{Name: path}}, err
}

func (c journalConn) Write(datagram []byte) (int, error) {
	if err := unix.Sendto(c.fd, datagram, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, c.to); err != nil {
		return 0, err
	}
	return len(datagram), nil
}

func newJournalHandler(conn, stderr io.Writer, nodeName string, newText func(io.Writer, *slog.HandlerOptions) slog.Handler, level slog.Leveler) slog.Handler {
	options := &slog.HandlerOptions{Level: level, ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		if len(groups) == 0 && a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}
	return &journalHandler{conn: conn, stderr: stderr, suffix: "-" + nodeName, level: level, newText: func(w io.Writer) slog.Handler { return newText(w, options) }}
}

// journalHandler is a slog.Handler. Each line is formatted by a handler of its own, without a lock:
// what formats a value may log, too.
type journalHandler struct {
	conn, stderr io.Writer
	// suffix is what a static pod's name has behind the name in its manifest.
	suffix  string
	level   slog.Leveler
	newText func(io.Writer) slog.Handler
	// fields are those of attributes that all records have.
	fields []journalField
	// grouped handlers have names of their own, which are no fields.
	grouped bool
}

type journalField struct{ name, value string }

func (h *journalHandler) Enabled(_ context.Context, level slog.Level) bool {
	return level >= h.level.Level()
}

func (h *journalHandler) Handle(ctx context.Context, r slog.Record) error {
	fields := slices.Clip(h.fields)
	if !h.grouped {
		r.Attrs(func(a slog.Attr) bool {
			fields = h.appendFields(fields, a)
			return true
		})
	}
	var line bytes.Buffer
	if err := h.newText(&line).Handle(ctx, r); err != nil {
		return err
	}
	if _, err := h.conn.Write(entryOf(line.String(), r.Level, fields)); err == nil {
		return nil
	}
	_, err := h.stderr.Write(line.Bytes())
	return err
}

func (h *journalHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	with := *h
	with.newText = func(w io.Writer) slog.Handler { return h.newText(w).WithAttrs(attrs) }
	if !h.grouped {
		with.fields = slices.Clone(h.fields)
		for _, a := range attrs {
			with.fields = h.appendFields(with.fields, a)
		}
	}
	return &with
}

func (h *journalHandler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	with := *h
	with.newText = func(w io.Writer) slog.Handler { return h.newText(w).WithGroup(name) }
	with.grouped = true
	return &with
}

// appendFields appends the fields of an attribute, if it is about a pod. A second field of a name
// is another value of it.
func (h *journalHandler) appendFields(fields []journalField, a slog.Attr) []journalField {
	switch a.Key {
	case "pod":
		full := a.Value.Resolve().String()
		namespace, name, found := strings.Cut(full, "/")
		if !found {
			namespace, name = "", full
		}
		fields = append(fields, journalField{"PODD_POD", name})
		if own, static := strings.CutSuffix(name, h.suffix); static && own != "" {
			fields = append(fields, journalField{"PODD_POD", own})
		}
		if namespace != "" {
			fields = append(fields, journalField{"PODD_NAMESPACE", namespace})
		}
	case "container", "uid", "reason":
		fields = append(fields, journalField{"PODD_" + strings.ToUpper(a.Key), a.Value.Resolve().String()})
	}
	return fields
}

// identifier is the name of the program: podd or kubelet.
var identifier = filepath.Base(os.Args[0])

// entryOf is a line with its fields, as the journal takes it.
func entryOf(line string, level slog.Level, fields []journalField) []byte {
	entry := appendField(nil, "MESSAGE", strings.TrimSuffix(line, "\n"))
	entry = appendField(entry, "PRIORITY", priority(level))
	entry = appendField(entry, "SYSLOG_IDENTIFIER", identifier)
	for _, f := range fields {
		entry = appendField(entry, f.name, f.value)
	}
	return entry
}

// appendField appends a field. A value of several lines comes with its length.
func appendField(entry []byte, name, value string) []byte {
	entry = append(entry, name...)
	if strings.Contains(value, "\n") {
		entry = binary.LittleEndian.AppendUint64(append(entry, '\n'), uint64(len(value)))
	} else {
		entry = append(entry, '=')
	}
	return append(append(entry, value...), '\n')
}

// priority returns syslog's number of a level.
func priority(level slog.Level) string {
	switch {
	case level >= slog.LevelError:
		return "3"
	case level >= slog.LevelWarn:
		return "4"
	case level >= slog.LevelInfo:
		return "6"
	}
	return "7"
}
