package cri

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The kubelet's bounds (pkg/kubelet/container/runtime.go).
const (
	maxTerminationMessage = 4096
	maxMessageFromLogs    = 2048
	maxLinesFromLogs      = 80
	// logTail is how much of a log's end is read to find its last lines.
	logTail = 128 << 10
)

// terminationMessage is what a dead container left to say: its termination log,
// or the end of its log when it failed, wrote nothing and wants that.
func (c *Client) terminationMessage(st *runtimeapi.ContainerStatus) string {
	fromLogs := st.Annotations[annotationMessagePolicy] == string(v1.TerminationMessageFallbackToLogsOnError) &&
		st.ExitCode != 0 && st.Reason != "ContainerCannotRun"
	if file := messageFile(st); file != "" {
		text, err := c.readTail(file, maxTerminationMessage)
		switch {
		case err == nil && len(text) > 0:
			return clean(text)
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return fmt.Sprintf("Error on reading termination log %s: %v", file, err)
		}
	}
	if !fromLogs || st.LogPath == "" {
		return ""
	}
	text, err := readTailAt(st.LogPath, logTail)
	if err != nil {
		return fmt.Sprintf("Error on reading termination message from logs: %v", err)
	}
	return clean(lastLogLines(text, maxLinesFromLogs, maxMessageFromLogs))
}

// messageFile is the host's side of the termination log.
func messageFile(st *runtimeapi.ContainerStatus) string {
	path := st.Annotations[annotationMessagePath]
	if path == "" {
		return ""
	}
	for _, m := range st.Mounts {
		if m.ContainerPath == path {
			return m.HostPath
		}
	}
	return ""
}

// ownMessageFile is the termination log if podd made it, so that it may go with
// the container.
func (c *Client) ownMessageFile(st *runtimeapi.ContainerStatus) string {
	file := messageFile(st)
	if strings.HasPrefix(file, filepath.Join(c.opts.RootDir, "pods")+"/") && strings.Contains(file, "/containers/") {
		return file
	}
	return ""
}

// readTail reads the end of a file that a container may have replaced: only a
// regular file, and through no symlink below podd's own directory. A FIFO or a
// device must not hang the look, and a symlink must not show the node's files.
func (c *Client) readTail(file string, most int64) ([]byte, error) {
	how := &unix.OpenHow{Flags: unix.O_RDONLY | unix.O_NONBLOCK | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS}
	dir := unix.AT_FDCWD
	if rel, err := filepath.Rel(c.opts.RootDir, file); err == nil && filepath.IsLocal(rel) {
		root, err := os.Open(c.opts.RootDir) // which may itself lie behind a symlink
		if err != nil {
			return nil, err
		}
		defer root.Close()
		dir, file = int(root.Fd()), rel
		how.Resolve |= unix.RESOLVE_BENEATH
	}
	fd, err := unix.Openat2(dir, file, how)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: file, Err: err}
	}
	f := os.NewFile(uintptr(fd), file)
	defer f.Close()
	return tailOf(f, most)
}

func readTailAt(file string, most int64) ([]byte, error) {
	f, err := os.OpenFile(file, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return tailOf(f, most)
}

func tailOf(f *os.File, most int64) ([]byte, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("not a regular file")
	}
	return io.ReadAll(io.NewSectionReader(f, max(info.Size()-most, 0), most))
}

// lastLogLines is the text of the last entries of a CRI log
// ("time stream tag text"), bounded in lines and bytes.
func lastLogLines(log []byte, lines, most int) []byte {
	entries := bytes.SplitAfter(log, []byte("\n"))
	if n := len(entries); n > 0 && len(entries[n-1]) == 0 {
		entries = entries[:n-1]
	}
	entries = entries[max(len(entries)-lines, 0):]
	var out []byte
	for _, e := range entries {
		f := bytes.SplitN(e, []byte(" "), 4)
		if len(f) < 4 {
			continue // the cut first line
		}
		text := f[3]
		if string(f[2]) == string(runtimeapi.LogTagPartial) {
			text = bytes.TrimSuffix(text, []byte("\n"))
		}
		out = append(out, text...)
	}
	return out[max(len(out)-most, 0):]
}

// clean makes text fit for an API object.
func clean(text []byte) string { return strings.ToValidUTF8(string(text), "�") }

func joinMessages(runtime, own string) string {
	if runtime == "" || own == "" {
		return runtime + own
	}
	return runtime + ": " + own
}
