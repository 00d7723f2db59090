package cri

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podd/cri/spec"
	"podd/podfs"
)

// The kubelet's bounds (pkg/kubelet/container/runtime.go).
const (
	maxTerminationMessage = 4096
	maxMessageFromLogs    = 2048
	maxLinesFromLogs      = 80
	// logTail is how many bytes at a log's end are read to find its last lines.
	logTail = 128 << 10
)

// terminationMessage returns a dead container's message: its termination log, or, if it
// failed, wrote none and its policy is FallbackToLogsOnError, the end of its log.
func (c *Client) terminationMessage(st *runtimeapi.ContainerStatus) string {
	fromLogs := st.Annotations[spec.AnnotationMessagePolicy] == string(v1.TerminationMessageFallbackToLogsOnError) &&
		st.ExitCode != 0 && st.Reason != "ContainerCannotRun"
	if file := messageFile(st); file != "" {
		text, err := c.spec.Dirs.ReadTail(file, maxTerminationMessage)
		switch {
		case err == nil && len(text) > 0:
			return toValidUTF8(text)
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return fmt.Sprintf("Error on reading termination log %s: %v", file, err)
		}
	}
	if !fromLogs || st.LogPath == "" {
		return ""
	}
	text, err := podfs.ReadLogTail(st.LogPath, logTail)
	if err != nil {
		return fmt.Sprintf("Error on reading termination message from logs: %v", err)
	}
	return toValidUTF8(lastLogLines(text, maxLinesFromLogs, maxMessageFromLogs))
}

// messageFile returns the path of the termination log on the host.
func messageFile(st *runtimeapi.ContainerStatus) string {
	path := st.Annotations[spec.AnnotationMessagePath]
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

// ownMessageFile returns the termination log if podd created it, so that it may be removed
// with the container.
func (c *Client) ownMessageFile(st *runtimeapi.ContainerStatus) string {
	if file := messageFile(st); c.spec.Dirs.IsTerminationLog(file) {
		return file
	}
	return ""
}

// lastLogLines returns the text of the last entries of a CRI log ("time stream tag text"),
// bounded in lines and bytes.
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

// toValidUTF8 makes text valid for an API object.
func toValidUTF8(text []byte) string { return strings.ToValidUTF8(string(text), "�") }

func joinMessages(runtime, own string) string {
	if runtime == "" || own == "" {
		return runtime + own
	}
	return runtime + ": " + own
}
