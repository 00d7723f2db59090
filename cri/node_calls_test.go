package cri_test

import "testing"

// TestTheDefaultRuntimeIsReadFromContainerdsSettings, of which only what is needed is
// understood, and nothing is an error.
func TestTheDefaultRuntimeIsReadFromContainerdsSettings(t *testing.T) {
	for name, tc := range map[string]struct{ settings, want string }{
		"containerd's": {`{"containerd": {"defaultRuntimeName": "fast", "runtimes": {
			"runc": {"runtimeType": "io.containerd.runc.v2", "options": {"BinaryName": "/lib/podd/runc", "SystemdCgroup": false}},
			"fast": {"options": {"BinaryName": "/usr/bin/crun"}}}}, "rootDir": "/x"}`, "/usr/bin/crun"},
		"without options":   {`{"containerd": {"defaultRuntimeName": "runc", "runtimes": {"runc": {"options": null}}}}`, ""},
		"of another name":   {`{"containerd": {"defaultRuntimeName": "kata", "runtimes": {}}}`, ""},
		"of another form":   {`{"containerd": ["runc"]}`, ""},
		"another runtime's": {``, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.srv.SetInfo("config", tc.settings)
			if got, err := r.DefaultRuntime(t.Context()); err != nil || got != tc.want {
				t.Errorf("got %q, %v, want %q", got, err, tc.want)
			}
		})
	}
}
