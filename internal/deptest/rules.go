package deptest

// upstream is the module with the node agent that podd replaces. podd links a small part of
// it, through one package.
const (
	upstream         = "k8s.io/kubernetes/"
	upstreamImporter = "podd/internal/podapi"
	// suiteImporter is not part of podd. It has the names of the images of upstream's tests.
	suiteImporter = "podd/test/cluster/suiteimages"
)

// allowedUpstream are the packages of k8s.io/kubernetes that may be in podd's binary: those
// that defaulting, conversion and validation of a Pod pull in. A new one is reviewed before
// it gets its row.
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
	"pkg/apis/storage":              "the internal CSIDriver that validation takes",
	"pkg/apis/storage/v1":           "defaulting and conversion of CSIDrivers",
	"pkg/apis/storage/validation":   "validation of CSIDrivers",
	"pkg/capabilities":              "validation: whether privileged containers are allowed",
	"pkg/features":                  "the feature gates that validation asks",
	"pkg/fieldpath":                 "validation: downward field paths",
	"pkg/util/parsers":              "defaulting: the tag of an image",
}

// banned are import paths, with everything below them, that must not be in podd's binary,
// and why. The longest row wins; an empty reason allows.
var banned = []struct{ path, reason string }{
	{"k8s.io/client-go", "of client-go only the REST client and reflectors are worth their size; add a row for what is needed"},
	{"k8s.io/client-go/features", ""}, // named by upstream's feature gates
	{"k8s.io/client-go/rest", ""},
	{"k8s.io/client-go/tools", ""}, // kubeconfigs and reflectors
	{"k8s.io/client-go/util", ""},
	{"k8s.io/client-go/transport", ""},
	{"k8s.io/client-go/metadata", ""},
	{"k8s.io/client-go/pkg", ""},
	{"k8s.io/client-go/plugin", ""},
	{"k8s.io/client-go/kubernetes", "the typed clientset costs 33 MB of binary and 15 MB of memory; use a REST client for the groups that podd speaks"},
	{"k8s.io/client-go/informers", "typed informers link the typed clientset"},
	{"github.com/google/cadvisor", "cgroup files are read when somebody asks; no housekeeping loop"},
	{"github.com/opencontainers/runc", "runc is a binary of the bundle; libcontainer's init runs C code at every start"},
	{"github.com/containernetworking/plugins", "CNI plugins are binaries of the bundle"},
	{"github.com/containerd/containerd/v2/cmd", "the runtime is a process of its own"},
	{"github.com/containerd/containerd/v2/plugins/cri", "the runtime's plugins run in the runtime"},
	{"github.com/containerd/containerd/v2/plugins/snapshots", "the runtime's plugins run in the runtime"},
	{"github.com/containerd/containerd/v2/core/runtime", "the runtime's shims belong to the runtime"},
	{"github.com/google/go-containerregistry", "registries are the runtime's business, credentials package images/credentials'; this is for tests and the building of images"},
	{"github.com/docker", "as above: a docker configuration is a small file to be read, not a client to be linked"},
	{"k8s.io/cri-client", "podd speaks to cri-api itself, with its own deadlines and error classes"},
	{"k8s.io/component-base/logs/json", "logs are log/slog, passed in"},
	{"testing", "a test helper is linked into the program"},
	{"podd/internal/perftest", "a test helper is linked into the program"},
	{"podd/internal/story", "a test helper is linked into the program"},
	{"podd/cri/critest", "a test helper is linked into the program"},
	{"podd/cni/cnitest", "a test helper is linked into the program"},
	{"podd/podconfig/manifest/hostile", "a test helper is linked into the program"},
}

// shared is what every package may import: common types, the releases that podd is made
// of, and how to wait, log and truncate.
var shared = []string{"internal/pod", "internal/wake", "internal/logonce", "internal/text", "internal/versions"}

// testHelper is what the tests of every package may also import.
const testHelper = "internal/perftest"

// arrows lists, for each package of the module, the others that it may import,
// besides the shared ones, and why. Siblings meet in node, through interfaces
// that the consumer declares: each can then be built, tested and read alone.
// A row that no import needs any more fails the test too.
var arrows = map[string]map[string]string{
	"internal/pod":           {},
	"internal/atomicfile":    {},
	"internal/wake":          {},
	"internal/logonce":       {},
	"internal/text":          {},
	"internal/checkpoint":    {"internal/atomicfile": "replaces a file in one step"},
	"internal/child":         {},
	"internal/podapi":        {"internal/features": "the gates that its test compares with upstream's"},
	"internal/deptest":       {},
	"internal/suggest":       {},
	"internal/features":      {"internal/suggest": "hints at misspelt gates"},
	"internal/strictyaml":    {"internal/bytesize": "the size of a text that is too large", "podconfig/manifest/hostile": "what its tests try its bounds with"},
	"internal/sender":        {},
	"internal/httpget":       {},
	"internal/versions":      {},
	"internal/hugepage":      {},
	"internal/slots":         {},
	"internal/budget":        {},
	"internal/perftest":      {},
	"internal/mask":          {},
	"internal/wipe":          {},
	"internal/instance":      {"internal/atomicfile": "records of who uses the directories"},
	"internal/podstore":      {"internal/checkpoint": "writes each pod in one step"},
	"agent":                  {"internal/slots": "bounds the sandboxes being started", "agent/plan": "decides what the worker does", "agent/allocation": "what the node granted", "agent/backoff": "restart delays", "internal/checkpoint": "checkpoints of pods", "internal/podstore": "the accepted pods", "internal/budget": "what early restarts may cost"},
	"agent/plan":             {"agent/backoff": "restart delays are part of the decision"},
	"agent/allocation":       {},
	"agent/backoff":          {},
	"admission":              {},
	"podconfig":              {},
	"internal/upstreamnames": {},
	"internal/selinux":       {},
	"podconfig/manifest": {
		"internal/podapi":           "the one authority on valid Pods and objects",
		"internal/features":         "which alpha fields are honoured",
		"podconfig/manifest/advice": "what its writer is told",
		"internal/suggest":          "hints at misspelt fields",
		"internal/strictyaml":       "reads the text",
		"internal/bytesize":         "sizes in messages",
	},
	"podconfig/manifest/advice": {
		"internal/strictyaml": "the errors that it explains",
		"internal/mask":       "what stands in place of a Secret's values",
		"internal/suggest":    "hints at misspelt fields",
		"internal/bytesize":   "sizes in messages",
	},
	"podconfig/manifest/hostile": {
		// texts, for tests
	},
	"podconfig/lastgood":           {"internal/atomicfile": "which directory is in memory", "internal/checkpoint": "one version for each origin"},
	"podconfig/file":               {"internal/filewatch": "which manifests are complete", "podconfig": "speaks its Snapshot", "podconfig/manifest": "decodes", "internal/features": "which alpha fields are honoured", "podconfig/lastgood": "keeps last good manifests", "objects/claims": "whether claims would find a volume, for podd validate"},
	"podconfig/apiserver":          {"podconfig": "speaks its Snapshot", "internal/podstore": "stores the pods that the apiserver gave"},
	"podconfig/http":               {"podconfig": "speaks its Snapshot", "podconfig/manifest": "decodes", "internal/features": "which alpha fields are honoured", "podconfig/lastgood": "keeps the last good answer", "internal/mask": "the URL as people may see it"},
	"cri":                          {"internal/pluginconn": "connects to the runtime", "internal/slots": "bounds the calls in flight", "cri/spec": "converts requests", "internal/mask": "what runtimes say of Secrets", "podfs": "where logs are, and what dead containers left"},
	"cri/spec":                     {"internal/hugepage": "page sizes in the runtime's words", "podfs": "where logs are"},
	"podenv":                       {"internal/checkpoint": "stores Services for a start without the apiserver"},
	"podfs":                        {"internal/instance": "the default directories"},
	"objects":                      {"objects/claims": "which claim has which volume", "internal/checkpoint": "keeps that"},
	"objects/claims":               {},
	"internal/story":               {},
	"cri/critest":                  {"cri/critest/state": "what it serves"},
	"cri/critest/state":            {},
	"pleg":                         {},
	"cluster/apiserver":            {"internal/atomicfile": "writes a kubeconfig", "internal/filewatch": "the kubeconfig as it changes"},
	"cluster/identity":             {"internal/atomicfile": "keys and certificates"},
	"internal/filewatch":           {},
	"cluster/nodestatus":           {},
	"cluster/nodestorage":          {},
	"cluster/mirror":               {},
	"cluster/tokens":               {},
	"cluster/podcerts":             {},
	"podlogs":                      {"internal/filewatch": "logs that are followed"},
	"prober":                       {"internal/features": "HTTP/2 without TLS, gRPC with it", "internal/pluginconn": "waits for the connection of a gRPC probe", "internal/budget": "what early runs may cost", "internal/httpget": "the httpGet action", "internal/atomicfile": "makes the directory of last results", "internal/checkpoint": "last results, one file a pod"},
	"hooks":                        {"internal/httpget": "the httpGet action"},
	"status":                       {},
	"nodeshutdown":                 {"agent/plan": "a pod's grace period", "internal/checkpoint": "when the machine last shut down", "internal/atomicfile": "logind's configuration", "internal/logonce": "why logind cannot be asked", "internal/child": "the bus of its tests"},
	"events":                       {"internal/checkpoint": "events for the next podd", "internal/logonce": "a disk that takes none"},
	"server":                       {"internal/filewatch": "one watch for all who follow logs", "internal/sender": "a share of the connections for each", "internal/mask": "what the ports do not show", "podlogs": "containers' logs"},
	"server/kubeletapi":            {"internal/atomicfile": "its own certificate", "internal/sender": "a limit of reviews for each"},
	"server/podsapi":               {"internal/unixserver": "its socket"},
	"inspect":                      {"internal/mask": "what is not shown"},
	"cli":                          {"server": "what the socket answers", "inspect": "the answer of podd inspect", "events": "which container an event is about", "internal/bytesize": "sizes of images", "images/archive": "how far an import is", "internal/suggest": "the pod that a misspelt name was meant to be", "podconfig/file": "checks what podd validate is given", "podconfig/manifest": "whether unknown fields count", "internal/features": "the gates that podd validate is given"},
	"images":                       {"images/records": "in its tests", "internal/imageref": "names of images", "internal/bytesize": "how far a pull is"},
	"images/archive":               {"internal/pluginconn": "connects to containerd", "internal/filewatch": "which archives are complete", "internal/imageref": "names of images", "internal/checkpoint": "remembers what was imported"},
	"images/credentials":           {"internal/child": "plugins end with podd"},
	"images/records":               {"internal/checkpoint": "writes the records", "internal/keylock": "one writer of an image's records at a time"},
	"images/gc":                    {"internal/imageref": "names of images", "internal/bytesize": "sizes in events"},
	"internal/imageref":            {},
	"internal/bytesize":            {},
	"config":                       {"images/records": "whether a policy is one", "internal/strictyaml": "decodes", "internal/features": "the feature gates", "internal/instance": "default directories", "internal/suggest": "hints at misspelt fields and flags", "internal/mask": "the configuration as people may see it", "eviction/threshold": "what the node keeps free"},
	"volumes":                      {"internal/features": "emptyDir.mode, owners of files", "internal/slots": "bounds the volumes being set up", "internal/hugepage": "emptyDir on huge pages", "internal/wipe": "deletes pods' directories", "internal/keylock": "one at work for a pod, its live volumes, or a device", "podfs": "the layout of a pod's directory", "volumes/payload": "writes ConfigMaps, Secrets and their like", "volumes/ownership": "gives volumes to the fsGroup", "internal/selinux": "the labels of files in memory"},
	"plugins/registry":             {"internal/pluginconn": "connects to registrars"},
	"plugins/loop":                 {},
	"plugins/devices":              {"plugins/registry": "the plugins that register", "plugins/loop": "starts tasks, and does what is due", "internal/checkpoint": "who has which devices", "internal/unixserver": "where plugins register", "internal/pluginconn": "connects to them"},
	"plugins/dra":                  {"plugins/registry": "the drivers that register", "plugins/loop": "starts tasks, and does what is due", "internal/checkpoint": "which pods use which claims", "internal/keylock": "one call at a time for a claim", "internal/pluginconn": "connects to drivers"},
	"plugins/devices/podresources": {"internal/unixserver": "its socket"},
	"internal/unixserver":          {},
	"internal/pluginconn":          {},
	"internal/keylock":             {},
	"plugins/csi":                  {"plugins/registry": "the drivers that register", "plugins/loop": "starts tasks", "internal/pluginconn": "connects to drivers", "internal/keylock": "one call at a time for a volume", "internal/checkpoint": "records of volumes", "internal/mask": "what a driver may say of Secrets", "internal/selinux": "the labels of volumes"},
	"volumes/payload":              {"internal/wipe": "deletes old versions", "volumes/ownership": "modes with an fsGroup"},
	"volumes/ownership":            {},
	"volumes/quota":                {},
	"volumes/usage":                {"internal/slots": "bounds the measurements", "podfs": "where logs and hosts files are"},
	"cni":                          {"internal/atomicfile": "the network's configuration", "internal/wipe": "deletes its leases", "cni/cnitest": "its own fake, for its tests"},
	"cni/cnitest":                  {},
	"cgroup":                       {"internal/hugepage": "their limits", "internal/atomicfile": "drop-ins of slices"},
	"stats":                        {"stats/kernel": "what it reads", "cgroup": "lists cgroups for its benchmark", "internal/child": "processes in them"},
	"stats/kernel":                 {"internal/filewatch": "settings that were written", "internal/child": "processes in the cgroups of its tests"},
	"eviction":                     {"eviction/threshold": "what is short, and how much of it is to be kept", "internal/bytesize": "sizes for people", "stats/kernel": "the memory that the node has left", "cgroup": "finds cgroups for its tests", "podfs": "directories for its tests", "volumes/usage": "file systems for its tests"},
	"eviction/threshold":           {},
	"logrotate":                    {},
	"systemd":                      {},
	"userns":                       {"podfs": "the layout of a pod's directory", "internal/checkpoint": "a pod's range of IDs"},
	"bundle":                       {"internal/pluginconn": "connects to its containerd", "internal/instance": "default directories", "internal/atomicfile": "the runtime's configuration and records", "internal/wipe": "deletes what lost sandboxes left"},

	"node/bundled": {"bundle": "the runtime", "cni": "its network", "cgroup": "which driver it is told", "internal/instance": "whose directories they are"},
	"node/teardown": {
		"node/bundled":      "what is ended",
		"bundle":            "who listens, what it leaves",
		"server":            "what podd answers when it has stopped its pods",
		"cgroup":            "pods' groups",
		"cri":               "ends what the runtime has",
		"cri/spec":          "a Client's options",
		"volumes":           "pods' mounts",
		"podfs":             "where pods' directories are",
		"internal/instance": "what podd recorded of itself",
		"internal/wipe":     "deletes directories",
		"cri/critest":       "the runtime of its tests",
	},
	"node/capacity": {"config": "what is reserved", "eviction/threshold": "what the node keeps free", "cgroup": "the name of the bound of processes", "internal/hugepage": "pages that are set aside"},
	"node": all("puts the parts together",
		"admission", "agent", "agent/backoff", "cluster/apiserver", "bundle", "cgroup", "cni", "config", "cri", "cri/spec", "plugins/csi", "plugins/devices", "plugins/devices/podresources", "plugins/dra", "plugins/registry", "events", "eviction", "eviction/threshold", "hooks", "cluster/identity", "images", "images/archive",
		"images/credentials", "images/gc", "images/records", "inspect", "internal/atomicfile", "internal/budget", "internal/bytesize", "internal/features", "internal/imageref", "internal/instance", "internal/pluginconn", "logrotate", "cluster/mirror", "node/bundled", "node/capacity", "cluster/nodestatus", "cluster/nodestorage", "nodeshutdown", "objects", "objects/claims", "pleg",
		"podconfig", "podconfig/apiserver", "podconfig/file", "podconfig/http", "podconfig/manifest", "podenv", "podfs", "podlogs", "prober", "server", "server/kubeletapi", "stats", "stats/kernel", "status", "systemd", "cluster/tokens", "userns", "volumes", "volumes/quota", "volumes/usage", "server/podsapi", "internal/selinux", "cluster/podcerts",
		"cri/critest"), // its tests
	"cmd/podd": all("commands on the parts",
		"bundle", "cgroup", "cli", "cni", "config", "inspect", "internal/instance", "node", "node/bundled", "node/teardown", "podconfig/manifest", "server", "systemd",
		"cri/critest", "podconfig/manifest/hostile"), // its tests
	"cmd/podd-bench": {"test/e2e/testnode": "measures on the node of the tests", "internal/perftest": "processor time", "test/e2e/whole": "what a whole version is", "test/cluster": "gives the kubelet pods with ConfigMaps"},

	"test/attack":                {"cri/critest": "the runtime of the podd that is attacked", "cgroup": "removes its cgroups"},
	"test/chaos":                 {"test/cluster": "the apiserver of a node of a cluster", "test/e2e/testnode": "the node that the faults strike", "test/e2e/whole": "what a whole version is"},
	"test/cluster":               {"test/e2e/testnode": "how the tests wait, and the node of a whole cluster"},
	"test/e2e":                   {"test/e2e/testnode": "the node of the tests", "inspect": "what a runtime was really given", "cgroup": "where a pod's limits are to be read", "cni/cnitest": "packets past the pod network", "test/e2e/whole": "what a whole version is", "test/cluster": "the cluster of a podd that is a node", "stats/kernel": "what this machine has left", "test/e2e/console": "where a person sits who uses podd"},
	"test/e2e/console":           {},
	"test/e2e/fuseserver":        {},
	"test/e2e/holder":            {},
	"test/e2e/reader":            {"test/e2e/whole": "what a whole version is"},
	"test/e2e/swapper":           {},
	"test/e2e/whole":             {},
	"test/e2e/knock":             {"cni/cnitest": "packets past the pod network"},
	"test/e2e/testnode":          {"bundle": "starts its runtime", "cni": "its pod network", "internal/instance": "its directories"},
	"test/kubeadm":               {"internal/child": "machines end with the tests", "test/e2e/testnode": "how the tests wait, and what the build has made", "bundle": "how podd is told where its runtime is", "test/cluster/conformance": "upstream's tests, run and judged as in a cluster of one node", "test/cluster/registry": "what those tests pull", "test/cluster/suiteimages": "the names of what they pull"},
	"test/vm":                    {"internal/child": "emulators end with the tests"},
	"hack/images/hostpathplugin": {},
	"hack/images/nnp":            {},
	"hack/images/web":            {},
	"hack/bump":                  {},
	"hack/mkimages":              {"test/cluster/suiteimages": "what the images of upstream's tests are called"},
	"hack/mutate":                {"internal/child": "a change that hangs ends with it"},
	"hack/testsum":               {},

	"test/cluster/conformance": {"bundle": "whether this machine lets a container's OOM score be lowered"},
	"test/cluster/registry":    {"test/e2e/testnode": "how an image is pushed"},
	"test/cluster/up":          {"test/cluster": "what it starts", "test/cluster/conformance": "upstream's tests", "test/cluster/registry": "what they pull", "test/cluster/suiteimages": "the names of what they pull", "test/e2e/testnode": "the machine's part of the node"},
	"test/cluster/suiteimages": {},
}

// all returns a row of packages that are imported for one reason.
func all(reason string, packages ...string) map[string]string {
	row := make(map[string]string, len(packages))
	for _, p := range packages {
		row[p] = reason
	}
	return row
}

// dictated are the functions that CheckShape allows, by file and name, and why.
var dictated = map[string]string{
	"cri/dial.go intercept":            "grpc.UnaryClientInterceptor",
	"plugins/dra/metrics.go intercept": "grpc.UnaryClientInterceptor",
}
