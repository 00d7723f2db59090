package config

import (
	"crypto/tls"
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
)

// externalCloud is the value of --cloud-provider that upstream has left.
const externalCloud = "external"

// setClusterDefaults fills what only the node of a cluster has, with the kubelet's values.
func setClusterDefaults(kc *kubeletv1beta1.KubeletConfiguration) {
	defaultPointer(&kc.KubeAPIQPS, 50)
	defaultValue(&kc.KubeAPIBurst, 100)
	defaultPointer(&kc.EventRecordQPS, 50)
	defaultValue(&kc.EventBurst, 100)
	defaultValue(&kc.NodeLeaseDurationSeconds, 40)
	defaultPointer(&kc.NodeStatusMaxImages, 50)
	defaultPointer(&kc.RegisterNode, true)
	setReportFrequency(kc)
	defaultDuration(&kc.NodeStatusUpdateFrequency, 10*time.Second)
}

// setReportFrequency has a status that does not change reported every five minutes, or, if it
// is configured how often it is looked at, as often as that, as upstream.
func setReportFrequency(kc *kubeletv1beta1.KubeletConfiguration) {
	if kc.NodeStatusReportFrequency.Duration != 0 {
		return
	}
	kc.NodeStatusReportFrequency.Duration = 5 * time.Minute
	if given := kc.NodeStatusUpdateFrequency.Duration; given != 0 {
		kc.NodeStatusReportFrequency.Duration = given
	}
}

// cluster judges what only the node of a cluster has.
func (c *checker) cluster(kc *kubeletv1beta1.KubeletConfiguration) {
	if *kc.KubeAPIQPS < 0 {
		c.fail("kubeAPIQPS", "%d is negative: give 0 for no limit", *kc.KubeAPIQPS)
	}
	if kc.KubeAPIBurst < 1 {
		c.fail("kubeAPIBurst", "%d is not positive", kc.KubeAPIBurst)
	}
	if *kc.EventRecordQPS < 0 {
		c.fail("eventRecordQPS", "%d is negative: give 0 for no limit", *kc.EventRecordQPS)
	}
	if kc.EventBurst < 1 {
		c.fail("eventBurst", "%d is not positive", kc.EventBurst)
	}
	if kc.NodeLeaseDurationSeconds < 1 {
		c.fail("nodeLeaseDurationSeconds", "%d is not positive", kc.NodeLeaseDurationSeconds)
	}
	if *kc.NodeStatusMaxImages < -1 {
		c.fail("nodeStatusMaxImages", "%d is no number of images: give -1 for no limit", *kc.NodeStatusMaxImages)
	}
	for field, d := range map[string]time.Duration{
		"nodeStatusUpdateFrequency": kc.NodeStatusUpdateFrequency.Duration, "nodeStatusReportFrequency": kc.NodeStatusReportFrequency.Duration,
	} {
		if d < time.Second {
			c.fail(field, "%s is too short: give 1s or more", d)
		}
	}
}

// fillCluster translates what was checked.
func (c *Config) fillCluster(kc *kubeletv1beta1.KubeletConfiguration) {
	c.EventQPS, c.EventBurst = float64(*kc.EventRecordQPS), int(kc.EventBurst)
	c.APIQPS, c.APIBurst = float32(*kc.KubeAPIQPS), int(kc.KubeAPIBurst)
	c.LeaseDuration = time.Duration(kc.NodeLeaseDurationSeconds) * time.Second
	c.StatusUpdateFrequency, c.StatusReportFrequency = kc.NodeStatusUpdateFrequency.Duration, kc.NodeStatusReportFrequency.Duration
	c.RotateCertificates, c.API.RequestCertificate = kc.RotateCertificates, kc.ServerTLSBootstrap
	c.StatusMaxImages = int(*kc.NodeStatusMaxImages)
	c.RegisterNode, c.ProviderID = *kc.RegisterNode, kc.ProviderID
	c.Taints = kc.RegisterWithTaints
}

// parseTaints reads key=value:effect,key:effect.
func parseTaints(s string) ([]v1.Taint, error) {
	var all []v1.Taint
	for each := range strings.SplitSeq(s, ",") {
		if each = strings.TrimSpace(each); each == "" {
			continue
		}
		head, effect, ok := strings.Cut(each, ":")
		key, val, _ := strings.Cut(head, "=")
		t := v1.Taint{Key: key, Value: val, Effect: v1.TaintEffect(effect)}
		switch t.Effect {
		case v1.TaintEffectNoExecute, v1.TaintEffectNoSchedule, v1.TaintEffectPreferNoSchedule:
		default:
			ok = false
		}
		if !ok || key == "" {
			return nil, fmt.Errorf("%q is not a taint: give key=value:NoSchedule, :PreferNoSchedule or :NoExecute", each)
		}
		all = append(all, t)
	}
	return all, nil
}

// KubeletAPI is how the kubelet's API is served and who may use it.
type KubeletAPI struct {
	// Address is host:port.
	Address string
	// Port is that of Address.
	Port int32
	// CertFile and KeyFile are both paths, or both empty: podd makes a certificate.
	CertFile, KeyFile string
	// RequestCertificate: podd requests its certificate from the cluster; that of CertFile
	// serves until it is there.
	RequestCertificate bool
	// MinVersion and CipherSuites are of crypto/tls; no suites are its own choice.
	MinVersion   uint16
	CipherSuites []uint16
	// ClientCAFile is empty where client certificates count for nothing.
	ClientCAFile      string
	Anonymous, Tokens bool
	TokenTTL          time.Duration
	// Review says that access is reviewed; otherwise all who are known may do everything.
	Review                bool
	AllowedTTL, DeniedTTL time.Duration
	// Debugging, DebugFlags, Profiling, SystemLogs and LogQuery are enableDebuggingHandlers,
	// enableDebugFlagsHandler, enableProfilingHandler, enableSystemLogHandler and
	// enableSystemLogQuery.
	Debugging, DebugFlags, Profiling, SystemLogs, LogQuery bool
}

// defaultAPIPort is upstream's KubeletPort.
const defaultAPIPort = 10250

func setAPIDefaults(kc *kubeletv1beta1.KubeletConfiguration) {
	defaultValue(&kc.Port, defaultAPIPort)
	defaultPointer(&kc.Authentication.Anonymous.Enabled, false)
	defaultPointer(&kc.Authentication.Webhook.Enabled, true)
	defaultDuration(&kc.Authentication.Webhook.CacheTTL, 2*time.Minute)
	defaultValue(&kc.Authorization.Mode, kubeletv1beta1.KubeletAuthorizationModeWebhook)
	defaultDuration(&kc.Authorization.Webhook.CacheAuthorizedTTL, 5*time.Minute)
	defaultDuration(&kc.Authorization.Webhook.CacheUnauthorizedTTL, 30*time.Second)
	defaultValue(&kc.TLSMinVersion, "VersionTLS12")
	defaultPointer(&kc.EnableDebuggingHandlers, true)
	defaultPointer(&kc.EnableDebugFlagsHandler, true)
	defaultPointer(&kc.EnableProfilingHandler, true)
	defaultPointer(&kc.EnableSystemLogHandler, true)
	defaultPointer(&kc.EnableSystemLogQuery, false)
}

var tlsVersions = map[string]uint16{
	"VersionTLS10": tls.VersionTLS10, "VersionTLS11": tls.VersionTLS11, "VersionTLS12": tls.VersionTLS12, "VersionTLS13": tls.VersionTLS13,
}

// cipherSuites are those of crypto/tls by their names, two of them also by older names, which
// upstream still takes and hardening guides list. insecureSuites are not taken for secure.
var cipherSuites, insecureSuites = func() (all, insecure map[string]uint16) {
	all, insecure = map[string]uint16{
		"TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305":   tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
		"TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305": tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
	}, map[string]uint16{}
	for _, s := range tls.CipherSuites() {
		all[s.Name] = s.ID
	}
	for _, s := range tls.InsecureCipherSuites() {
		all[s.Name], insecure[s.Name] = s.ID, s.ID
	}
	return all, insecure
}()

// tlsWarnings are about what is served though it is insecure, and what cannot be chosen.
func tlsWarnings(kc *kubeletv1beta1.KubeletConfiguration, lines map[string]Problem) []string {
	var all []string
	warn := func(field, message string) {
		p := positionOf(lines, field)
		p.Message = message
		all = append(all, p.String())
	}
	if v := tlsVersions[kc.TLSMinVersion]; v != 0 && v < tls.VersionTLS12 {
		warn("tlsMinVersion", kc.TLSMinVersion+" is insecure, and is served to clients that have nothing newer: give VersionTLS12, unless there are such")
	}
	if kc.TLSMinVersion == "VersionTLS13" && len(kc.TLSCipherSuites) > 0 {
		warn("tlsCipherSuites", "has no effect with VersionTLS13, whose suites cannot be chosen")
		return all
	}
	for i, name := range kc.TLSCipherSuites {
		if _, ok := insecureSuites[name]; ok {
			warn(fmt.Sprintf("tlsCipherSuites[%d]", i), name+" is insecure, and is served to clients that have nothing better: leave it out, unless there are such")
		}
	}
	return all
}

func (c *checker) api(kc *kubeletv1beta1.KubeletConfiguration) {
	if kc.Port < 1 || kc.Port > 65535 {
		c.fail("port", "%d is not a port: give one from 1 to 65535", kc.Port)
	}
	if (kc.TLSCertFile == "") != (kc.TLSPrivateKeyFile == "") {
		c.fail("tlsCertFile", "has no effect without tlsPrivateKeyFile, nor that without it: give both")
	}
	switch kc.Authorization.Mode {
	case kubeletv1beta1.KubeletAuthorizationModeAlwaysAllow, kubeletv1beta1.KubeletAuthorizationModeWebhook:
	default:
		c.fail("authorization.mode", "%q is not known: give Webhook or AlwaysAllow", kc.Authorization.Mode)
	}
	if _, ok := tlsVersions[kc.TLSMinVersion]; !ok {
		c.fail("tlsMinVersion", "%q is not supported: give VersionTLS12 or VersionTLS13, or one of the insecure VersionTLS10 and VersionTLS11", kc.TLSMinVersion)
	}
	if *kc.EnableSystemLogQuery && !*kc.EnableSystemLogHandler {
		c.fail("enableSystemLogQuery", "has no effect without enableSystemLogHandler: set that to true")
	}
	for i, name := range kc.TLSCipherSuites {
		if _, ok := cipherSuites[name]; !ok {
			c.fail(fmt.Sprintf("tlsCipherSuites[%d]", i), "%q is not a cipher suite, such as TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", name)
		}
	}
}

func (c *Config) fillAPI(kc *kubeletv1beta1.KubeletConfiguration, address string) {
	a := &c.API
	a.Address, a.Port = hostPort(address, kc.Port), kc.Port
	a.CertFile, a.KeyFile, a.ClientCAFile = kc.TLSCertFile, kc.TLSPrivateKeyFile, kc.Authentication.X509.ClientCAFile
	a.MinVersion = tlsVersions[kc.TLSMinVersion]
	for _, name := range kc.TLSCipherSuites {
		a.CipherSuites = append(a.CipherSuites, cipherSuites[name]) // was checked
	}
	a.Anonymous, a.Tokens, a.TokenTTL = *kc.Authentication.Anonymous.Enabled, *kc.Authentication.Webhook.Enabled, kc.Authentication.Webhook.CacheTTL.Duration
	a.Review = kc.Authorization.Mode == kubeletv1beta1.KubeletAuthorizationModeWebhook
	a.Debugging, a.DebugFlags, a.Profiling = *kc.EnableDebuggingHandlers, *kc.EnableDebugFlagsHandler, *kc.EnableProfilingHandler
	a.SystemLogs, a.LogQuery = *kc.EnableSystemLogHandler, *kc.EnableSystemLogQuery
	a.AllowedTTL, a.DeniedTTL = kc.Authorization.Webhook.CacheAuthorizedTTL.Duration, kc.Authorization.Webhook.CacheUnauthorizedTTL.Duration
}
