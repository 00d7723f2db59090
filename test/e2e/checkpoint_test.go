package e2e

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"testing"
)

// A running container is checkpointed and runs on (KEP-2008). Its runtime needs a criu that
// knows this kernel: on Linux 6.18 Debian 13's 4.1 does, Debian 12's 3.17 does not.
func TestARunningContainerIsCheckpointedAndRunsOn(t *testing.T) {
	if out, err := exec.Command("criu", "check").CombinedOutput(); err != nil {
		t.Skipf("there is no criu that can checkpoint on this kernel: %v: %s", err, out)
	}
	m := joinAsAdmin(t)
	m.bind(m.podOf("counter", `i=0; while :; do i=$((i+1)); echo $i > /out/count.tmp; mv /out/count.tmp /out/counter; sleep 0.1; done`))
	m.mark("counter")
	before := m.shown("counter", "ready", isReady)
	reader := newCaller(m.server.UserToken("reader"))
	code, body, err := reader.call(t.Context(), "POST", m.api()+"/checkpoint/default/counter/main")
	var answer struct{ Items []string }
	if err = errors.Join(err, json.Unmarshal([]byte(body), &answer)); err != nil || code != http.StatusOK || len(answer.Items) != 1 {
		t.Fatalf("got %d %q, %v", code, body, err)
	}
	archive := answer.Items[0]
	if dir := filepath.Join(m.node.Root(), "checkpoints"); filepath.Dir(archive) != dir {
		t.Errorf("the archive is %s, want it in %s", archive, dir)
	}
	if at, err := os.Stat(archive); err != nil || at.Mode().Perm() != 0o600 {
		t.Errorf("the archive: got %v, %v; want one for root alone", at, err)
	}
	names, err := namesIn(archive)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"spec.dump", "config.dump", "inventory.img"} {
		if !slices.ContainsFunc(names, func(name string) bool { return path.Base(name) == want }) {
			t.Errorf("the archive has %q, and no %s", names, want)
		}
	}
	then := m.contents("counter")
	m.eventually("it counts on", func(context.Context) error {
		if now := m.contents("counter"); now == then {
			return fmt.Errorf("it is at %s still", now)
		}
		return nil
	})
	after := m.shown("counter", "ready", isReady)
	if got, want := firstContainer(after), firstContainer(before); got.ContainerID != want.ContainerID || got.RestartCount != 0 {
		t.Errorf("the container is another one: %+v, want %+v", got, want)
	}
	m.delete("counter")
	m.gone("counter")
}

func namesIn(archive string) (names []string, err error) {
	f, err := os.Open(archive)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	for r := tar.NewReader(f); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return names, nil
		}
		if err != nil {
			return names, err
		}
		names = append(names, h.Name)
	}
}
