package bundle

import (
	"context"
	"errors"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// notifySocket returns where the runtime that the Supervisor starts reports that it is
// ready (sd_notify), beside its own socket.
func notifySocket(socket string) string { return socket + ".ready" }

// notifier is a socket for sd_notify. It has a path and no abstract name, because
// everything in podd's network namespace could send to that, even a hostNetwork pod.
type notifier struct {
	path string
	conn *net.UnixConn
}

func listenNotify(path string) (*notifier, error) {
	// A podd that was killed may have left it.
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return nil, err
	}
	n := &notifier{path: path, conn: conn}
	raw, err := conn.SyscallConn()
	if err == nil {
		var setErr error
		err = raw.Control(func(fd uintptr) { setErr = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PASSCRED, 1) })
		err = errors.Join(err, setErr)
	}
	if err = errors.Join(err, os.Chmod(path, 0o600)); err != nil {
		n.close()
		return nil, err
	}
	return n, nil
}

// close may be called more than once.
func (n *notifier) close() {
	if n.conn.Close() == nil {
		_ = os.Remove(n.path)
	}
}

// receive returns the next message and the process that sent it, according to the kernel; 0
// if that cannot be seen from this PID namespace.
func (n *notifier) receive(text []byte) (said []string, pid int, err error) {
	control := make([]byte, unix.CmsgSpace(unix.SizeofUcred))
	size, controlSize, _, _, err := n.conn.ReadMsgUnix(text, control)
	if err != nil {
		return nil, 0, err
	}
	messages, err := unix.ParseSocketControlMessage(control[:controlSize])
	if err != nil {
		return nil, 0, err
	}
	for _, m := range messages {
		if cred, err := unix.ParseUnixCredentials(&m); err == nil {
			pid = int(cred.Pid)
		}
	}
	return strings.Split(string(text[:size]), "\n"), pid, nil
}

// watchReadiness waits for READY=1 from the process and marks the runtime ready. It ignores what
// others send.
func (s *Supervisor) watchReadiness(ctx context.Context, notify *notifier, pid int, began time.Time) {
	defer context.AfterFunc(ctx, func() { notify.conn.SetReadDeadline(time.Unix(1, 0)) })()
	slow := time.AfterFunc(slowStart, func() {
		s.log.Warn("container runtime is slow to start: it loads the state of its containers first", "pid", pid)
	})
	defer slow.Stop()
	buf := make([]byte, 4096)
	for {
		said, sender, err := notify.receive(buf)
		if err != nil || ctx.Err() != nil {
			return
		}
		if sender != pid {
			s.log.Warn("ignoring a notification from a process that is not the container runtime", "pid", sender, "runtime", pid)
			continue
		}
		if slices.Contains(said, "READY=1") {
			s.log.Info("container runtime is ready", "pid", pid, "after", time.Since(began).Round(time.Millisecond))
			notify.close() // nothing more is listened to
			s.setReady(pid, began)
			return
		}
	}
}
