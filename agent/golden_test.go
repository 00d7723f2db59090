package agent_test

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"

	"golang.org/x/tools/txtar"
)

var update = flag.Bool("update", false, "write the golden statuses of the scenarios anew")

// golden compares a pod's status with a file of the archive, or writes it.
func (s *scenario) golden(name, file string) error {
	s.disk.Lock()
	st, reported := s.status[name]
	s.disk.Unlock()
	if !reported {
		return fmt.Errorf("%s has no status", name)
	}
	text := []byte(inWords(st))
	if *update {
		s.written[file] = text
		return nil
	}
	if got, want := string(text), string(s.files[file]); got != want {
		return fmt.Errorf("got status\n%s\nwant (%s)\n%s", got, file, want)
	}
	return nil
}

// rewrite puts the golden files that were written into the archive.
func rewrite(path string, archive *txtar.Archive, written map[string][]byte) error {
	for name, text := range written {
		i := slices.IndexFunc(archive.Files, func(f txtar.File) bool { return f.Name == name })
		if i < 0 {
			i = len(archive.Files)
			archive.Files = append(archive.Files, txtar.File{Name: name})
		}
		archive.Files[i].Data = text
	}
	return os.WriteFile(path, txtar.Format(archive), 0o644)
}

// inWords is a status without times and IDs, a line for each thing.
func inWords(st v1.PodStatus) string {
	var b strings.Builder
	line := func(words ...string) {
		b.WriteString(strings.Join(slices.DeleteFunc(words, func(w string) bool { return w == "" }), " ") + "\n")
	}
	line(string(st.Phase), st.Reason, quoted(st.Message))
	for _, c := range st.Conditions {
		line(string(c.Type), string(c.Status), c.Reason, quoted(c.Message))
	}
	for _, list := range []struct {
		kind string
		ctrs []v1.ContainerStatus
	}{{"init", st.InitContainerStatuses}, {"", st.ContainerStatuses}, {"ephemeral", st.EphemeralContainerStatuses}} {
		for _, c := range list.ctrs {
			last := ""
			if c.LastTerminationState.Terminated != nil {
				last = "after " + stateInWords(c.LastTerminationState)
			}
			line(list.kind, c.Name+":", stateInWords(c.State), last, fmt.Sprintf("ready=%v started=%v restarts=%d", c.Ready, c.Started != nil && *c.Started, c.RestartCount))
		}
	}
	return b.String()
}

func stateInWords(s v1.ContainerState) string {
	switch {
	case s.Running != nil:
		return "running"
	case s.Terminated != nil:
		return strings.TrimRight(fmt.Sprintf("terminated %s %d %s", s.Terminated.Reason, s.Terminated.ExitCode, quoted(s.Terminated.Message)), " ")
	case s.Waiting != nil:
		return strings.TrimRight(fmt.Sprintf("waiting %s %s", s.Waiting.Reason, quoted(s.Waiting.Message)), " ")
	}
	return "nothing"
}

func quoted(text string) string {
	if text == "" {
		return ""
	}
	return strconv.Quote(text)
}
