package systemd

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The names of podd's units.
const (
	agentUnit   = "podd.service"
	runtimeUnit = "podd-runtime.service"
)

func TestUnitsPassSystemdAnalyze(t *testing.T) {
	tool, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not installed")
	}
	// The programs they start need not be installed here: /bin/true stands in.
	dir := t.TempDir()
	var files []string
	for _, name := range []string{agentUnit, runtimeUnit} {
		text := unit(t, name)
		text = strings.ReplaceAll(text, "/usr/bin/podd", "/bin/true")
		text = strings.ReplaceAll(text, "/sbin/modprobe", "/bin/true")
		text = strings.ReplaceAll(text, "Documentation=", "#")
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	out, err := exec.Command(tool, append([]string{"verify", "--man=no", "--recursive-errors=no"}, files...)...).CombinedOutput()
	var ours []string
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "podd") {
			ours = append(ours, line)
		}
	}
	if err != nil || len(ours) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
}

// What keeps pods alive when one of the two units is restarted.
func TestUnitsLetPodsOutliveThem(t *testing.T) {
	for name, text := range map[string]string{agentUnit: unit(t, agentUnit), runtimeUnit: unit(t, runtimeUnit)} {
		for _, line := range []string{"Type=notify", "KillMode=process", "Delegate=yes", "Restart=always", "StateDirectory=podd", "RuntimeDirectory=podd", "RuntimeDirectoryPreserve=yes"} {
			if !strings.Contains(text, "\n"+line+"\n") {
				t.Errorf("%s lacks %s", name, line)
			}
		}
		for _, bond := range []string{"Requires=", "BindsTo=", "PartOf="} {
			if strings.Contains(text, "\n"+bond) {
				t.Errorf("%s has %s: stopping one unit would stop the other", name, bond)
			}
		}
	}
	agent := unit(t, agentUnit)
	if !strings.Contains(agent, "\nWatchdogSec=") {
		t.Errorf("%s lacks its watchdog", agentUnit)
	}
	_, after, _ := strings.Cut(agent, "\nAfter=")
	after, _, _ = strings.Cut(after, "\n")
	for _, other := range []string{"network.target", "network-online.target", "podd-runtime.service", "containerd.service", "crio.service", "dbus.service"} {
		if !slices.Contains(strings.Fields(after), other) {
			t.Errorf("%s is not ordered after %s: it would not be there while podd ends pods at a shutdown", agentUnit, other)
		}
	}
}

// TestOnlyTheAgentHasABoundOfItsMemory: podd is started again and nothing is lost,
// but below the runtime's unit are the shims of all pods.
func TestOnlyTheAgentHasABoundOfItsMemory(t *testing.T) {
	if !strings.Contains(unit(t, agentUnit), "\nMemoryMax=") {
		t.Errorf("%s has no MemoryMax", agentUnit)
	}
	if strings.Contains(unit(t, runtimeUnit), "\nMemoryMax=") {
		t.Errorf("%s has a MemoryMax", runtimeUnit)
	}
}

func unit(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("units", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The drop-ins of the default root are podd's own, as it would write them for another one.
func TestSlicesAreLeftToPoddWhenTheMachineShutsDown(t *testing.T) {
	for _, dir := range []string{"podd.slice.d", "podd-.slice.d"} {
		text, err := os.ReadFile(filepath.Join("units", dir, "50-podd-shutdown.conf"))
		if err != nil || !strings.Contains(string(text), "\n[Unit]\nDefaultDependencies=no\n") {
			t.Errorf("%s: got %q, %v", dir, text, err)
		}
	}
}
