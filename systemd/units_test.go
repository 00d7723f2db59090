package systemd

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestUnitsPassSystemdAnalyze(t *testing.T) {
	tool, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not installed")
	}
	// The programs they start need not be installed here: /bin/true stands in.
	dir := t.TempDir()
	var files []string
	for _, name := range []string{AgentUnit, RuntimeUnit} {
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
	for name, text := range map[string]string{AgentUnit: unit(t, AgentUnit), RuntimeUnit: unit(t, RuntimeUnit)} {
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
	agent := unit(t, AgentUnit)
	if !strings.Contains(agent, "\nWatchdogSec=") || !strings.Contains(agent, "\nAfter=network-online.target podd-runtime.service") {
		t.Errorf("%s lacks its watchdog or its order after the runtime", AgentUnit)
	}
}

// TestOnlyTheAgentHasABoundOfItsMemory: podd is started again and nothing is lost,
// but below the runtime's unit are the shims of all pods.
func TestOnlyTheAgentHasABoundOfItsMemory(t *testing.T) {
	if !strings.Contains(unit(t, AgentUnit), "\nMemoryMax=") {
		t.Errorf("%s has no MemoryMax", AgentUnit)
	}
	if strings.Contains(unit(t, RuntimeUnit), "\nMemoryMax=") {
		t.Errorf("%s has a MemoryMax", RuntimeUnit)
	}
}

func unit(t *testing.T, name string) string {
	t.Helper()
	text, err := Units.ReadFile("units/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
