package deptest

// upstream is the module whose node agent podd replaces; a small part of it
// is linked, through one package.
const (
	upstream = "k8s.io/kubernetes/"
	gate     = "podd/internal/podapi"
)

// allowedUpstream are the packages of k8s.io/kubernetes that may be in podd's
// binary: what defaulting, conversion and validation of a Pod pull in. A new
// one is looked at by a person before it gets its row.
var allowedUpstream = map[string]string{
	"pkg/api/node":                  "validation: node labels and taints of the core group",
	"pkg/api/persistentvolumeclaim": "validation: volume claim templates",
	"pkg/api/pod":                   "the options of validation, and which API objects a pod names",
	"pkg/api/service":               "validation of the core group",
	"pkg/api/v1/pod":                "defaulting: visitors of a pod's containers",
	"pkg/api/v1/service":            "conversion and defaulting of the core group",
	"pkg/apis/apps":                 "conversion of the core group",
	"pkg/apis/autoscaling":          "validation of the core group",
	"pkg/apis/certificates":         "validation: pod certificates",
	"pkg/apis/core":                 "the internal Pod that validation takes",
	"pkg/apis/core/helper":          "validation: what the internal types mean",
	"pkg/apis/core/helper/qos":      "validation: QoS classes",
	"pkg/apis/core/pods":            "conversion: downward field labels",
	"pkg/apis/core/v1":              "defaulting and conversion",
	"pkg/apis/core/v1/helper":       "defaulting: what the v1 types mean",
	"pkg/apis/core/validation":      "validation itself",
	"pkg/apis/node":                 "validation: overhead of runtime classes",
	"pkg/capabilities":              "validation: whether privileged containers are allowed",
	"pkg/features":                  "the feature gates that validation asks",
	"pkg/fieldpath":                 "validation: downward field paths",
	"pkg/util/parsers":              "defaulting: the tag of an image",
}

// banned are import paths, with all below them, that must not be in podd's
// binary, and why. The longest row wins; an empty reason allows.
var banned = []struct{ path, reason string }{
	{"k8s.io/client-go", "of client-go only the REST client and reflectors are worth their size; add a row for what is needed"},
	{"k8s.io/client-go/features", ""}, // named by upstream's feature gates
	{"k8s.io/client-go/kubernetes", "the typed clientset costs 33 MB of binary and 15 MB of memory; use a REST client for the groups that podd speaks"},
	{"k8s.io/client-go/informers", "typed informers link the typed clientset"},
	{"github.com/google/cadvisor", "cgroup files are read when somebody asks; no housekeeping loop"},
	{"github.com/opencontainers/runc", "runc is a binary of the bundle; libcontainer's init runs C code at every start"},
	{"github.com/containernetworking/plugins", "CNI plugins are binaries of the bundle"},
	{"github.com/containerd/containerd/v2/cmd", "the runtime is a process of its own"},
	{"github.com/containerd/containerd/v2/plugins/cri", "the runtime's plugins run in the runtime"},
	{"github.com/containerd/containerd/v2/plugins/snapshots", "the runtime's plugins run in the runtime"},
	{"github.com/containerd/containerd/v2/core/runtime", "the runtime's shims belong to the runtime"},
	{"github.com/google/go-containerregistry", "registries are the runtime's business, credentials package images'; this is for tests and the building of images"},
	{"github.com/docker", "as above: a docker configuration is a small file to be read, not a client to be linked"},
	{"k8s.io/cri-client", "podd speaks to cri-api itself, with its own deadlines and error classes"},
	{"k8s.io/component-base/logs/json", "logs are log/slog, passed in"},
	{"testing", "a test helper is linked into the program"},
	{"podd/internal/turns", "a test helper is linked into the program"},
}

// free are directories whose packages may import any of podd's: they wire or
// try the parts.
var free = map[string]string{
	"cmd":      "wires the parts",
	"test":     "tries the parts together",
	"hack":     "builds things; not part of the program",
	"tools":    "builds things; not part of the program",
	"bundle":   "",
	"examples": "shows how the parts are used",
}

// sharedWords is what every package may import.
const sharedWords = "internal/pod"

// testHelper is what the tests of every package may import besides.
const testHelper = "internal/turns"

// arrows lists, for each package, the other packages of podd that it may
// import, besides internal/pod. Siblings meet in cmd/podd, through interfaces
// that the consumer declares: each can then be built, tested and read alone.
var arrows = map[string]map[string]string{
	"internal/pod":        {},
	"internal/atomicfile": {},
	"internal/podapi":     {},
	"internal/deptest":    {},
	"internal/near":       {},
	"internal/httpget":    {},
	"internal/hugepage":   {},
	"internal/turns":      {},
	"internal/mask":       {},
	"internal/wipe":       {},
	"internal/places":     {"internal/atomicfile": "notes of who uses the directories"},
	"agent":               {"agent/plan": "decides what the worker does", "agent/backoff": "restart delays", "internal/atomicfile": "notes of pods for the podd after this one"},
	"agent/plan":          {"agent/backoff": "restart delays are part of the decision"},
	"agent/backoff":       {},
	"admission":           {},
	"podconfig":           {},
	"podconfig/manifest": {
		"internal/podapi":            "the one authority on a valid Pod",
		"internal/near":              "hints at misspelt fields",
		"podconfig/manifest/hostile": "what its tests try its bounds with",
	},
	"podconfig/manifest/hostile": {
		// texts, for tests
	},
	"podconfig/file": {"podconfig": "speaks its Snapshot", "podconfig/manifest": "decodes", "internal/atomicfile": "keeps last good manifests"},
	"podconfig/http": {"podconfig": "speaks its Snapshot", "podconfig/manifest": "decodes", "internal/atomicfile": "keeps the last good answer", "internal/mask": "the URL as people may see it"},
	"cri":            {"internal/hugepage": "page sizes in the runtime's words", "internal/atomicfile": "hooks that are too long for annotations"},
	"cri/critest":    {},
	"pleg":           {},
	"prober":         {"internal/httpget": "the httpGet action", "internal/atomicfile": "keeps last results"},
	"hooks":          {"internal/httpget": "the httpGet action"},
	"status":         {},
	"events":         {},
	"server":         {"internal/mask": "what the ports do not show"},
	"config":         {"internal/near": "hints at misspelt fields and flags", "internal/mask": "the configuration as people may see it"},
	"images":         {"internal/atomicfile": "remembers what was imported"},
	"volumes":        {"internal/hugepage": "emptyDir on huge pages", "internal/wipe": "deletes pods' directories"},
	"cni":            {"internal/atomicfile": "the network's configuration", "internal/wipe": "deletes its leases", "cni/cnitest": "its own fake, for its tests"},
	"cni/cnitest":    {},
	"cgroup":         {"internal/hugepage": "their limits"},
	"logrotate":      {},
	"systemd":        {},
	"userns":         {"internal/atomicfile": "a pod's range of IDs"},
}
