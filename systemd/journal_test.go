package systemd

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// aJournal is the socket of a journal that keeps what it is sent.
type aJournal struct {
	t    *testing.T
	conn *net.UnixConn
	path string
}

func newJournal(t *testing.T, path string) *aJournal {
	t.Helper()
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &aJournal{t, conn, path}
}

// next returns the fields of the next entry, in order.
func (j *aJournal) next() (fields []string) {
	j.t.Helper()
	_ = j.conn.SetReadDeadline(time.Now().Add(time.Minute))
	datagram := make([]byte, 1<<20)
	n, err := j.conn.Read(datagram)
	if err != nil {
		j.t.Fatal(err)
	}
	for rest := datagram[:n]; len(rest) > 0; {
		line, after, found := bytes.Cut(rest, []byte("\n"))
		if !found {
			j.t.Fatalf("the entry ends in %q", rest)
		}
		if bytes.Contains(line, []byte("=")) {
			fields, rest = append(fields, string(line)), after
			continue
		}
		size := binary.LittleEndian.Uint64(after)
		fields = append(fields, string(line)+"="+string(after[8:8+size]))
		if rest = after[8+size:]; rest[0] != '\n' {
			j.t.Fatalf("no end behind %q", fields)
		}
		rest = rest[1:]
	}
	return fields
}

func text(w io.Writer, o *slog.HandlerOptions) slog.Handler { return slog.NewTextHandler(w, o) }

func logTo(t *testing.T, path string, stderr io.Writer) *slog.Logger {
	t.Helper()
	conn, err := newJournalConn(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(conn.fd) })
	return slog.New(newJournalHandler(conn, stderr, "node-1", text, slog.LevelInfo))
}

func TestTheJournalHasFieldsOfWhatALineIsAbout(t *testing.T) {
	j := newJournal(t, filepath.Join(t.TempDir(), "socket"))
	log := logTo(t, j.path, io.Discard)
	end := "SYSLOG_IDENTIFIER=" + identifier
	for _, c := range []struct {
		write func()
		want  []string
	}{
		{func() { log.Info("podd is starting", "node", "node-1") }, []string{`MESSAGE=level=INFO msg="podd is starting" node=node-1`, "PRIORITY=6", end}},
		{func() {
			log.With("pod", "default/web-node-1", "uid", "u1").Warn("event", "container", "c", "reason", "BackOff")
		},
			[]string{"MESSAGE=level=WARN msg=event pod=default/web-node-1 uid=u1 container=c reason=BackOff", "PRIORITY=4", end,
				"PODD_POD=web-node-1", "PODD_POD=web", "PODD_NAMESPACE=default", "PODD_UID=u1", "PODD_CONTAINER=c", "PODD_REASON=BackOff"}},
		{func() { log.Error("no static pod", "pod", "apps/job", "reason", errors.New("why")) },
			[]string{"MESSAGE=level=ERROR msg=\"no static pod\" pod=apps/job reason=why", "PRIORITY=3", end, "PODD_POD=job", "PODD_NAMESPACE=apps", "PODD_REASON=why"}},
		{func() { log.WithGroup("g").With("pod", "a/b").Info("x", "uid", "u") }, []string{"MESSAGE=level=INFO msg=x g.pod=a/b g.uid=u", "PRIORITY=6", end}},
		// Nothing that a line quotes is another field.
		{func() { log.Info("x", "reason", "a\nPRIORITY=0\nPODD_POD=b") },
			[]string{`MESSAGE=level=INFO msg=x reason="a\nPRIORITY=0\nPODD_POD=b"`, "PRIORITY=6", end, "PODD_REASON=a\nPRIORITY=0\nPODD_POD=b"}},
	} {
		c.write()
		if got := j.next(); !slices.Equal(got, c.want) {
			t.Errorf("got  %q\nwant %q", got, c.want)
		}
	}
	log.Debug("nothing")
	log.Info("next")
	if got := j.next(); !strings.Contains(got[0], "next") {
		t.Errorf("got %q: its level is not logged", got)
	}
}

func TestWhatTheJournalDoesNotTakeGoesToStderr(t *testing.T) {
	j := newJournal(t, filepath.Join(t.TempDir(), "socket"))
	var stderr bytes.Buffer
	log := logTo(t, j.path, &stderr)
	log.Info("long", "text", strings.Repeat("x", 4<<20)) // more than a datagram may have
	if got := stderr.String(); !strings.HasPrefix(got, "level=INFO msg=long text=xxx") || !strings.HasSuffix(got, "x\n") {
		t.Errorf("stderr has %.40q", got)
	}
	stderr.Reset()
	_ = j.conn.Close()
	log.Info("gone", "pod", "a/b")
	if got := stderr.String(); got != "level=INFO msg=gone pod=a/b\n" {
		t.Errorf("stderr has %q", got)
	}
	stderr.Reset()
	if err := os.Remove(j.path); err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	again := newJournal(t, j.path)
	log.Info("back")
	if got := again.next(); got[0] != "MESSAGE=level=INFO msg=back" || stderr.Len() > 0 {
		t.Errorf("a journal with a new socket has %q, stderr %q", got, &stderr)
	}
}

// A journal that is behind has a full queue. podd neither waits for it, nor tries until it has room.
func TestAJournalThatIsBehindHoldsUpNobody(t *testing.T) {
	j := newJournal(t, filepath.Join(t.TempDir(), "socket"))
	other, err := newJournalConn(j.path)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(other.fd)
	for range 1 << 20 { // another service fills the queue
		if _, err = other.Write([]byte("MESSAGE=x\n")); err != nil {
			break
		}
	}
	if !errors.Is(err, unix.EAGAIN) {
		t.Fatalf("the queue has no end: %v", err)
	}
	var stderr bytes.Buffer
	written := make(chan struct{})
	go func() {
		defer close(written)
		logTo(t, j.path, &stderr).Info("behind", "pod", "a/b")
	}()
	select {
	case <-written:
	case <-time.After(time.Minute):
		t.Fatal("a line waits for the journal")
	}
	if got := stderr.String(); got != "level=INFO msg=behind pod=a/b\n" {
		t.Errorf("stderr has %q", got)
	}
}

// What formats a value may log, too.
func TestAValueThatLogsDoesNotHangTheLog(t *testing.T) {
	j := newJournal(t, filepath.Join(t.TempDir(), "socket"))
	log := logTo(t, j.path, io.Discard)
	log.Info("outer", "value", logs{log})
	if first, second := j.next(), j.next(); first[0] != "MESSAGE=level=INFO msg=inner" || second[0] != "MESSAGE=level=INFO msg=outer value=x" {
		t.Errorf("got %q and %q", first, second)
	}
}

type logs struct{ log *slog.Logger }

func (l logs) LogValue() slog.Value {
	l.log.Info("inner")
	return slog.StringValue("x")
}

func TestWithoutAJournalThereIsNoHandlerOfIts(t *testing.T) {
	t.Setenv("JOURNAL_STREAM", "")
	if h := NewJournalHandler(os.Stderr, "node-1", text, slog.LevelInfo); h != nil {
		t.Error("stderr is no journal's")
	}
	t.Setenv("JOURNAL_STREAM", "1:2") // of the program that started podd with another stderr
	if h := NewJournalHandler(os.Stderr, "node-1", text, slog.LevelInfo); h != nil {
		t.Error("stderr is another file than the journal's")
	}
}
