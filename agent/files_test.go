package agent_test

import (
	"os"
	"testing"

	"google.golang.org/grpc/codes"
)

// names are what a directory has; nothing for one that is not there.
func names(dir string) (all []string) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

// TestLogsAreLinkedAsLongAsTheirContainersAreThere: from the start on, by the next
// podd too, until the sandbox is removed.
func TestLogsAreLinkedAsLongAsTheirContainersAreThere(t *testing.T) {
	m := startMany(t)
	d := manyPod(0)
	m.add(d)
	m.runsOnce(t, d)
	if got := names(m.dirs.ContainerLogs); len(got) != 1 {
		t.Errorf("links: got %v, want one", got)
	}
	m.stop()
	m.run(t) // with other directories
	m.add(d)
	m.await(t, "the next podd links what runs", patience, func() bool { return len(names(m.dirs.ContainerLogs)) == 1 })
	m.drop(d)
	m.gone(t)
	m.await(t, "no link is left", patience, func() bool { return len(names(m.dirs.ContainerLogs)) == 0 })
}

// TestFilesOfAContainerThatWasNotMadeAreDiscarded: one that is tried again and
// again must not fill the disk.
func TestFilesOfAContainerThatWasNotMadeAreDiscarded(t *testing.T) {
	m := startMany(t)
	d := manyPod(0)
	m.srv.FailNth("CreateContainer", 1, codes.Internal, "no")
	m.add(d)
	m.runsOnce(t, d)
	if n := m.srv.Count("CreateContainer"); n < 2 {
		t.Errorf("got %d creates, want one that failed", n)
	}
	if got := names(m.dirs.Container(d.UID(), "c0")); len(got) != 1 {
		t.Errorf("termination logs: got %v, want that of the container that runs", got)
	}
}
