package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// compose is what somebody has who comes from docker-compose: a program with its
// settings and its password, in three files.
var compose = map[string]string{
	"settings.yaml": `apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data:
  LEVEL: ${LEVEL}
  app.ini: |
    [main]
    level = ${LEVEL}
`,
	"password.yaml": `apiVersion: v1
kind: Secret
metadata: {name: password}
stringData: {PASSWORD: correct-horse}
`,
	"app.yaml": `apiVersion: v1
kind: Pod
metadata: {name: app, annotations: {podd/restart-on-change: "${RESTART}"}}
spec:
  terminationGracePeriodSeconds: 5
  containers:
  - name: app
    image: ${IMAGE}
    command: [/bin/sh, -c, "echo $LEVEL $PASSWORD $(cat /one.ini) >> /out/started; echo > /out/up-$LEVEL;
      trap 'exit 0' TERM; while :; do : > /out/read-$(tail -n 1 /etc/app/app.ini | cut -d ' ' -f 3); sleep 0.05; done"]
    envFrom: [{configMapRef: {name: settings}}]
    env: [{name: PASSWORD, valueFrom: {secretKeyRef: {name: password, key: PASSWORD}}}]
    volumeMounts:
    - {name: out, mountPath: /out}
    - {name: settings, mountPath: /etc/app}
    - {name: settings, mountPath: /one.ini, subPath: app.ini}
  volumes:
  - name: out
    hostPath: {path: ${OUT}, type: Directory}
  - name: settings
    configMap: {name: settings}
`,
}

// put writes files of compose, with values for LEVEL and RESTART.
func (e *env) put(level, restart string, files ...string) {
	e.Helper()
	for _, file := range files {
		e.write(file, e.vars("${LEVEL}", level, "${RESTART}", restart).Replace(compose[file]))
	}
}

// TestConfigMapsAndSecretsAreFilesBesideStaticPods (kubernetes/kubernetes#27312,
// #8379, #103587): who comes from docker-compose has no cluster to keep them in. They
// are files, in any order; an edit reaches the files in the container, and the
// program restarts when its owner wants that; who uses what, and what is missing or
// wrong, can be seen.
func TestConfigMapsAndSecretsAreFilesBesideStaticPods(t *testing.T) {
	e := begin(t)
	e.worldWritable()
	e.put("low", "false", "app.yaml")
	e.event("app", "FailedMount", `configmap "settings" not found`)
	e.put("low", "false", "settings.yaml")
	e.event("app", "Failed", `secret "password" not found`)
	e.put("low", "false", "password.yaml")
	e.mark("up-low", "read-low")
	if got, want := e.contents("started"), "low correct-horse [main] level = low\n"; got != want {
		t.Errorf("the program got %q, want %q", got, want)
	}

	before := e.ready("app")
	e.put("high", "false", "settings.yaml")
	e.mark("read-high")
	if p := e.ready("app"); p.UID != before.UID || p.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("an edit of the settings restarted the pod: %s", describe(p))
	}
	e.terminate(e.ready("app"), "app") // restart on demand
	e.mark("up-high")

	for _, tt := range []struct {
		args []string
		want []string
	}{
		{[]string{"get", "configmaps"}, []string{"settings", "default/app-" + e.podd.NodeName()}},
		{[]string{"get", "secrets", "-o", "wide"}, []string{"password", "Opaque", "PASSWORD", "password.yaml:1", "default/app-" + e.podd.NodeName()}},
		{[]string{"describe", "app"}, []string{"ConfigMap (a volume populated by a ConfigMap)", "settings", "<set to the key 'PASSWORD' in secret 'password'>"}},
	} {
		out := e.run(tt.args...)
		if !holdsAll(out, tt.want) || strings.Contains(out, "correct-horse") {
			t.Errorf("podd %q: want %q, and no password:\n%s", tt.args, tt.want, out)
		}
	}
	if out, err := e.validate(); err != nil {
		t.Errorf("podd validate of what runs: %v\n%s", err, out)
	}
	e.write("typo.yaml", replacedAll(e, replacedAll(e, e.vars("${RESTART}", "false").Replace(compose["app.yaml"]), "name: app,", "name: typo,"), "key: PASSWORD", "key: PASWORD"))
	e.event("typo", "Failed", "couldn't find key PASWORD in Secret default/password")
	out, err := e.validate()
	if err != nil || !holdsAll(out, []string{"typo.yaml", "PASWORD", `did you mean "PASSWORD"`}) {
		t.Errorf("podd validate does not warn of the key that is not there: %v\n%s", err, out)
	}
}

// validate is podd validate of the manifest directory.
func (e *env) validate() (string, error) {
	e.Helper()
	out, err := exec.Command(e.podd.Binary, "validate", e.podd.Manifests()).CombinedOutput()
	return string(out), err
}

// TestAPodIsRestartedWhenAnObjectThatItNamesChanges (kubernetes/kubernetes#30189), if
// it says that it wants that: in place, once, with variables and subPaths, which never
// follow, and also for what changed while podd was not there.
func TestAPodIsRestartedWhenAnObjectThatItNamesChanges(t *testing.T) {
	e := prepare(t)
	e.volatile(filepath.Join(e.node.State(), "objects"))
	e.start()
	e.worldWritable()
	e.put("one", "true", "app.yaml", "settings.yaml", "password.yaml")
	e.mark("up-one")
	before := e.ready("app")
	e.put("two", "true", "settings.yaml")
	e.mark("up-two")
	e.event("app", "ObjectChanged", "ConfigMap settings changed", "podd/restart-on-change")

	e.kill()
	e.put("three", "true", "settings.yaml")
	e.start()
	e.mark("up-three")
	e.stop()
	e.start() // nothing has changed
	e.kill()
	e.put("four", "true", "settings.yaml")
	e.start()
	e.mark("up-four")

	after := e.restarted("app", 3)
	if after.UID != before.UID || len(after.Status.PodIPs) == 0 || after.Status.PodIP != before.Status.PodIP {
		t.Errorf("the pod was %s at %s, and is %s at %s: want its containers restarted in place", before.UID, before.Status.PodIP, after.UID, after.Status.PodIP)
	}
	want := ""
	for _, level := range []string{"one", "two", "three", "four"} {
		want += fmt.Sprintf("%[1]s correct-horse [main] level = %[1]s\n", level)
	}
	if got := e.contents("started"); got != want {
		t.Errorf("its starts saw\n%swant\n%s", got, want)
	}
	list, err := e.node.CRI.Containers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range list {
		if text := c.String(); strings.Contains(text, "correct-horse") {
			t.Errorf("the runtime's record of a container shows a Secret: %s", text)
		}
	}
}

// volatile puts a tmpfs at a directory until the test's end.
func (e *env) volatile(dir string) {
	e.Helper()
	if err := errors.Join(os.MkdirAll(dir, 0o700), unix.Mount("volatile", dir, "tmpfs", 0, "size=64k")); err != nil {
		e.Fatal(err)
	}
	e.before["mount"] = append(e.before["mount"], "tmpfs on "+dir)
	e.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			e.Error(err)
		}
	})
}
