package config

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
)

// TestFieldsIsTheTable: every field of the type is in the table, and no other.
func TestFieldsIsTheTable(t *testing.T) {
	want := leaves(reflect.TypeFor[kubeletv1beta1.KubeletConfiguration](), "")
	slices.Sort(want)
	var got []string
	for _, f := range Fields {
		got = append(got, f.Path)
		if f.Honoured == false && f.Remark == "" {
			t.Errorf("%s is ignored without a reason", f.Path)
		}
	}
	if !slices.Equal(got, want) {
		for _, x := range want {
			if !slices.Contains(got, x) {
				t.Errorf("the KubeletConfiguration has a field %s: add it to Fields, honoured or with a remark", x)
			}
		}
		for _, x := range got {
			if !slices.Contains(want, x) {
				t.Errorf("the KubeletConfiguration has no field %s: take it out of Fields", x)
			}
		}
		t.Error("Fields is not the type's fields, sorted by path")
	}
}

// TestHonouredFieldsReachConfig: setting a field to something else than its default
// changes Config. What of Config node and cmd/podd name is a test's of cmd/podd
// (TestEveryConfigFieldIsNamedByWhoWiresIt); that it has its effect, that of the
// package which honours it.
func TestHonouredFieldsReachConfig(t *testing.T) {
	values := map[string]string{
		"address": `"127.0.0.9"`, "cgroupDriver": `"systemd"`, "cgroupRoot": `"/x"`, "clusterDNS": `["10.0.0.9"]`,
		"clusterDomain": `"x.local"`, "containerRuntimeEndpoint": `"/x.sock"`, "crashLoopBackOff.maxContainerRestartPeriod": `"7s"`,
		"fileCheckFrequency": `"7s"`, "localStorageCapacityIsolation": `false`, "volumeStatsAggPeriod": `"7m"`, "healthzBindAddress": `"127.0.0.9"`, "healthzPort": `7`, "httpCheckFrequency": `"7s"`,
		"logging.format": `"json"`, "logging.verbosity": `5`, "maxParallelImagePulls": `7`,
		"oomScoreAdj": `7`, "podCIDR": `"10.7.0.0/16"`, "podLogsDir": `"/x"`, "readOnlyPort": `7`,
		"registryBurst": `7`, "registryPullQPS": `7`, "resolvConf": `"/x"`, "runtimeRequestTimeout": `"7s"`,
		"serializeImagePulls": `true`, "seccompDefault": `true`, "userNamespaces.idsPerPod": `131072`, "staticPodPath": `"/x"`, "staticPodURL": `"http://x/y"`,
		"staticPodURLHeader":   `{"A": ["b"]}`,
		"containerLogMaxFiles": `7`, "containerLogMaxSize": `"7Mi"`, "containerLogMaxWorkers": `7`, "containerLogMonitorInterval": `"7s"`,
		"imageGCHighThresholdPercent": `97`, "imageGCLowThresholdPercent": `7`, "imageMaximumGCAge": `"7h"`, "imageMinimumGCAge": `"7m"`,
		"imagePullCredentialsVerificationPolicy": `AlwaysVerify`, "preloadedImagesVerificationAllowlist": "[reg.test/a]\nimagePullCredentialsVerificationPolicy: NeverVerifyAllowlistedImages",
		"allowedUnsafeSysctls": `["net.core.somaxconn"]`, "cpuCFSQuota": `false`, "cpuCFSQuotaPeriod": `"7ms"`, "enforceNodeAllocatable": `["none"]`,
		"evictionSoft": "{pid.available: \"7\"}\nevictionSoftGracePeriod: {pid.available: 7s}", "evictionSoftGracePeriod": "{pid.available: 7s}\nevictionSoft: {pid.available: \"7\"}",
		"evictionMinimumReclaim": `{"nodefs.available": "7Mi"}`, "evictionMaxPodGracePeriod": `7`, "evictionPressureTransitionPeriod": `"7m"`, "kernelMemcgNotification": `true`,
		"evictionHard": `{"memory.available": "7Mi"}`, "featureGates": `{PodsAPI: false}`, "defaultPodSysctls": "{net.ipv4.tcp_keepalive_time: \"7\"}\nfeatureGates: {DefaultPodSysctls: true}", "kubeReserved": `{"cpu": "7m"}`, "maxPods": `7`, "memoryReservationPolicy": `TieredReservation`, "memoryThrottlingFactor": `0.7`, "memorySwap.swapBehavior": `"LimitedSwap"`,
		"mergeDefaultEvictionSettings": `true`, "podPidsLimit": `7`, "podsPerCore": `7`, "singleProcessOOMKill": `true`, "systemCgroups": "/system\ncgroupRoot: /", "systemReserved": `{"memory": "7Mi"}`,
		"authentication.anonymous.enabled": `true`, "authentication.webhook.cacheTTL": `7s`, "authentication.webhook.enabled": `false`,
		"authentication.x509.clientCAFile": `"/x"`, "authorization.mode": `AlwaysAllow`, "authorization.webhook.cacheAuthorizedTTL": `7s`,
		"authorization.webhook.cacheUnauthorizedTTL": `7s`, "port": `7`, "tlsCertFile": "/x\ntlsPrivateKeyFile: /y", "tlsPrivateKeyFile": "/x\ntlsCertFile: /y", "tlsMinVersion": `VersionTLS13`,
		"enableDebuggingHandlers": `false`, "enableDebugFlagsHandler": `false`, "enableProfilingHandler": `false`,
		"enableSystemLogHandler": `false`, "enableSystemLogQuery": `true`,
		"tlsCipherSuites": `[TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256]`,
		"eventBurst":      `7`, "eventRecordQPS": `7`, "kubeAPIBurst": `7`, "kubeAPIQPS": `7`, "nodeLeaseDurationSeconds": `7`, "nodeStatusMaxImages": `7`, "nodeStatusReportFrequency": `"7s"`, "nodeStatusUpdateFrequency": `"7s"`,
		"rotateCertificates": `true`, "serverTLSBootstrap": `true`,
		"shutdownGracePeriod": `7s`, "shutdownGracePeriodCriticalPods": "7s\nshutdownGracePeriod: 9s", "shutdownGracePeriodByPodPriority": `[{priority: 7, shutdownGracePeriodSeconds: 7}]`,
		"providerID": `"x"`, "registerNode": `false`, "registerWithTaints": `[{key: a, effect: NoSchedule}]`,
	}
	base := head + "readOnlyPort: 10255\nstaticPodURL: http://x/\nevictionHard: {nodefs.available: 5%}\n"
	before, err := load(t, base, "--hostname-override=n")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range Fields {
		if !f.Honoured || f.Path == "apiVersion" || f.Path == "kind" || f.Path == "cgroupsPerQOS" { // which have one value
			continue
		}
		value, ok := values[f.Path]
		if !ok {
			t.Errorf("%s: no value here to try it with", f.Path)
			continue
		}
		outer, _, _ := strings.Cut(f.Path, ".")
		body := strings.ReplaceAll(base, "\n"+outer+":", "\n#")
		after, err := load(t, body+nested(f.Path, value)+"\n", "--hostname-override=n")
		if err != nil {
			t.Errorf("%s: %v", f.Path, err)
			continue
		}
		x, y := *before, *after
		x.Kubelet, y.Kubelet, x.File, y.File = nil, nil, "", ""
		if reflect.DeepEqual(x, y) {
			t.Errorf("%s: set to %s, Config does not change", f.Path, value)
		}
	}
}

func TestEveryFieldFlagIsInTheTable(t *testing.T) {
	for _, ff := range fieldFlags() {
		if kubeletFlags[ff.name] != ff.field {
			t.Errorf("--%s stands for %s, the table says %q", ff.name, ff.field, kubeletFlags[ff.name])
		}
	}
	for _, f := range Fields {
		if f.Honoured && f.Flag != "" && !slices.ContainsFunc(fieldFlags(), func(ff *fieldFlag) bool { return ff.name == f.Flag }) {
			t.Errorf("%s is honoured, its flag --%s does not exist", f.Path, f.Flag)
		}
	}
}

// nested is a field with a value, as it is written in a file.
func nested(path, value string) string {
	outer, inner, deeper := strings.Cut(path, ".")
	if !deeper {
		return outer + ": " + value
	}
	return outer + ": {" + strings.ReplaceAll(inner, ".", ": {") + ": " + value + strings.Repeat("}", strings.Count(path, "."))
}

// something is a value of a type, in JSON, that is none of podd's own.
func something(of reflect.Type) string {
	if of == reflect.TypeFor[metav1.Duration]() {
		return `"7s"`
	}
	switch of.Kind() {
	case reflect.Bool:
		return "true"
	case reflect.Pointer:
		return something(of.Elem())
	case reflect.String:
		return `"x"`
	case reflect.Map:
		return `{"x": ` + something(of.Elem()) + "}"
	case reflect.Slice:
		return "[" + something(of.Elem()) + "]"
	case reflect.Struct: // whose fields are no matter of a warning, if it is not a quantity or the like
		if !reflect.PointerTo(of).Implements(reflect.TypeFor[json.Unmarshaler]()) {
			return "{}"
		}
	}
	return "7"
}

// TestEveryIgnoredFieldIsNamedInAWarning: whoever sets one learns that it has no effect, and why.
func TestEveryIgnoredFieldIsNamedInAWarning(t *testing.T) {
	allocated := reflect.New(reflect.TypeFor[kubeletv1beta1.KubeletConfiguration]())
	allocate(allocated.Elem())
	n := 0
	for _, f := range Fields {
		if f.Honoured {
			continue
		}
		n++
		value := something(fieldByPath(allocated, f.Path).Type())
		if f.Path == "enableControllerAttachDetach" {
			value = "false"
		}
		c, err := load(t, head+nested(f.Path, value)+"\n", "--hostname-override=n")
		if err != nil {
			t.Errorf("%s: %v", f.Path, err)
			continue
		}
		if want := fmt.Sprintf("FILE:3: %s: is not supported: %s", f.Path, f.Remark); !slices.Equal(c.Warnings, []string{want}) {
			t.Errorf("%s: %s: got %q, want %q", f.Path, value, c.Warnings, want)
		}
	}
	if n == 0 {
		t.Error("no field is ignored")
	}
}

// allocate makes all pointers in a struct point to something.
func allocate(v reflect.Value) {
	for i := range v.NumField() {
		f := v.Field(i)
		if f.Kind() == reflect.Pointer {
			f.Set(reflect.New(f.Type().Elem()))
			f = f.Elem()
		}
		if f.Kind() == reflect.Struct && f.Type() != reflect.TypeFor[metav1.Duration]() && f.CanSet() {
			allocate(f)
		}
	}
}

// Values that ask for what podd does anyway need no warning: files that list all defaults have them.
func TestWhatPoddDoesAnywayIsNoWarning(t *testing.T) {
	c, err := load(t, head+`configMapAndSecretChangeDetectionStrategy: Watch
contentType: application/vnd.kubernetes.protobuf
enableControllerAttachDetach: true
cpuManagerPolicy: none
memoryManagerPolicy: None
topologyManagerPolicy: none
failCgroupV1: false
failSwapOn: false
containerRuntimeEndpoint: unix:///x.sock
imageServiceEndpoint: unix:///x.sock
`, "--hostname-override=n")
	if err != nil || len(c.Warnings) > 0 {
		t.Errorf("got %q, %v", c.Warnings, err)
	}
}

// TestEveryIgnoredFlagIsNamedInAWarning: of the flags that podd has under the name kubelet.
func TestEveryIgnoredFlagIsNamedInAWarning(t *testing.T) {
	n := 0
	for name, path := range kubeletFlags {
		var f Flags
		fs := pflag.NewFlagSet("kubelet", pflag.ContinueOnError)
		f.Bind(fs)
		f.BindKubelet(fs)
		if _, ignored := fs.Lookup(name).Value.(*ignoredFlag); !ignored {
			continue
		}
		n++
		if err := fs.Parse([]string{"--" + name + "=x", "--hostname-override=n"}); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		c, err := f.Load()
		if err != nil || !slices.ContainsFunc(c.Warnings, func(w string) bool {
			return strings.HasPrefix(w, "--"+name+": has no effect: ") && len(w) > len(name)+20
		}) {
			t.Errorf("--%s (%s): got %v, %v", name, path, c, err)
		}
	}
	if n == 0 {
		t.Error("no flag is ignored")
	}
}

// TestFlagsOfCAdvisorEndTheStart under either name. podd accepts other flags of the kubelet's
// with a warning, but the kubelet of 1.37 does not start with these either.
func TestFlagsOfCAdvisorEndTheStart(t *testing.T) {
	for _, name := range cAdvisorFlags {
		var f Flags
		fs := pflag.NewFlagSet("kubelet", pflag.ContinueOnError)
		f.Bind(fs)
		f.BindKubelet(fs)
		err := fs.Parse([]string{"--" + name + "=1"})
		if err == nil {
			t.Errorf("--%s is accepted", name)
		} else if got := FlagError(fs, err).Error(); !strings.HasPrefix(got, "--"+name+" configured cAdvisor") || !strings.Contains(got, "omit it") {
			t.Errorf("--%s: got %q", name, got)
		}
	}
}
