package manifest

// Warm decodes a small Pod, so that the first real one does not pay for what
// upstream's code builds once (regular expressions, feature gates, this
// package's field tables). It takes some milliseconds of CPU and may run beside
// anything else; podd calls it while the runtime is being connected to.
func Warm() {
	Decode([]byte(`
apiVersion: v1
kind: Pod
metadata: {name: warm, labels: {app: warm}}
spec:
  containers:
  - name: warm
    image: localhost/podd/pause:1
    ports: [{containerPort: 80}]
    env: [{name: A, value: b}]
    resources: {limits: {memory: 1Mi}}
    volumeMounts: [{name: v, mountPath: /v}]
  volumes: [{name: v, emptyDir: {}}]
`), Options{NodeName: "warm"})
}
