package e2e

import (
	"encoding/base64"
	"fmt"
)

// secretManifests are files with Secrets, good and bad, and pods that use them.
func (e *env) secretManifests(s *secrets) map[string]string {
	auth := base64.StdEncoding.EncodeToString([]byte("me:" + s.value("pull")))
	pull := fmt.Sprintf(`{"auths":{"localhost:1":{"username":"me","password":%q,"auth":%q}}}`, s.value("pull"), auth)
	s.values["pull's auth"] = auth
	v := e.vars("${PULL}", base64.StdEncoding.EncodeToString([]byte(pull)), "${DATA}", s.base64("data"), "${STRING}", s.value("stringData"),
		"${ENV}", s.value("env"), "${ENVFROM}", s.value("envFrom"), "${ARG}", s.value("arg"), "${VOLUME}", s.value("volume"),
		"${PROJECTED}", s.value("projected"), "${SUBPATH}", s.value("subPath"))
	secret := func(name, rest string) string {
		return "{apiVersion: v1, kind: Secret, metadata: {name: " + name + "}, " + rest + "}\n"
	}
	return map[string]string{
		"uses.yaml": v.Replace(usesSecrets), "crash.yaml": v.Replace(crashesWithSecrets), "missing.yaml": v.Replace(lacksAKey),
		"unpulled.yaml": v.Replace(pullsWithSecret),
		"base64.yaml":   secret("bad-base64", `data: {password: "`+s.value("no base64")+`!"}`),
		"key.yaml":      secret("bad-key", `stringData: {"a/b": "`+s.value("bad key")+`"}`),
		"docker.yaml":   secret("bad-docker", `type: kubernetes.io/dockerconfigjson, stringData: {.dockerconfigjson: "`+s.value("no JSON")+`"}`),
		"field.yaml":    secret("bad-field", `stringdata: {password: "`+s.value("unknown field")+`"}`),
		"number.yaml":   secret("bad-number", `stringData: {password: {nested: "`+s.value("nested")+`"}}`),
		"yaml.yaml":     "apiVersion: v1\nkind: Secret\nmetadata: {name: bad-yaml}\nstringData:\n  password: \"" + s.value("bad YAML") + "\n\tx: [\n",
		"json.json":     `{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "bad-json"}, "stringData": {"password": "` + s.value("bad JSON") + `"`,
		"twice-a.yaml":  secret("twice", `stringData: {password: "`+s.value("first of two")+`"}`),
		"twice-b.yaml":  secret("twice", `stringData: {password: "`+s.value("second of two")+`"}`),
	}
}

// usesSecrets is a pod that has Secrets in every way; it reads all, and says none.
const usesSecrets = `apiVersion: v1
kind: Secret
metadata: {name: all}
data: {data: ${DATA}}
stringData: {string: "${STRING}", env: "${ENV}", arg: "${ARG}", volume: "${VOLUME}", projected: "${PROJECTED}", part: "${SUBPATH}"}
---
apiVersion: v1
kind: Secret
metadata: {name: from}
stringData: {FROM: "${ENVFROM}", "1.not-a-name": "${ENVFROM}"}
---
apiVersion: v1
kind: Pod
metadata: {name: uses}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: ${IMAGE}
    command:
    - /bin/sh
    - -c
    - |
      cat /all/* /some/data /some/deep/* /projected/* /part > /dev/null; [ -n "$PASSWORD" ] && [ -n "$1" ] || exit 1; : > /out/uses; ${REST}
    - sh
    - $(ARG)
    env:
    - {name: PASSWORD, valueFrom: {secretKeyRef: {name: all, key: env}}}
    - {name: ARG, valueFrom: {secretKeyRef: {name: all, key: arg}}}
    envFrom: [{secretRef: {name: from}}]
    readinessProbe: {exec: {command: [/bin/test, -e, /out/uses]}, periodSeconds: 5, timeoutSeconds: 5}
    volumeMounts:
    - {name: out, mountPath: /out}
    - {name: all, mountPath: /all}
    - {name: some, mountPath: /some}
    - {name: projected, mountPath: /projected}
    - {name: all, mountPath: /part, subPath: part}
  volumes:
  - name: out
    hostPath: {path: ${OUT}, type: Directory}
  - name: all
    secret: {secretName: all}
  - name: some
    secret: {secretName: all, items: [{key: volume, path: deep/volume}, {key: data, path: data}], defaultMode: 0400}
  - name: projected
    projected: {sources: [{secret: {name: all, items: [{key: projected, path: projected}]}}]}
`

// crashesWithSecrets is refused by the runtime, with variables in what it is given.
const crashesWithSecrets = `apiVersion: v1
kind: Pod
metadata: {name: crash}
spec:
  containers:
  - name: main
    image: ${IMAGE}
    command: [/no/such/program, "$(PASSWORD)"]
    env: [{name: PASSWORD, valueFrom: {secretKeyRef: {name: all, key: env}}}]
`

const lacksAKey = `apiVersion: v1
kind: Pod
metadata: {name: missing}
spec:
  containers:
  - name: main
    image: ${IMAGE}
    volumeMounts: [{name: s, mountPath: /s}]
  volumes:
  - name: s
    secret: {secretName: all, items: [{key: no-such-key, path: x}]}
`

const pullsWithSecret = `apiVersion: v1
kind: Secret
metadata: {name: registry}
type: kubernetes.io/dockerconfigjson
data: {.dockerconfigjson: ${PULL}}
---
apiVersion: v1
kind: Pod
metadata: {name: unpulled}
spec:
  imagePullSecrets: [{name: registry}]
  containers: [{name: main, image: "localhost:1/app:1"}]
`

const secretsFromURL = `{apiVersion: v1, kind: Secret, metadata: {name: http}, stringData: {password: "${HTTP}"}}
---
apiVersion: v1
kind: Pod
metadata: {name: from-url}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: ${IMAGE}
    command: [/bin/sh, -c, "cat /s/password > /dev/null; ${REST}"]
    volumeMounts: [{name: s, mountPath: /s}]
  volumes:
  - name: s
    secret: {secretName: http}
`
