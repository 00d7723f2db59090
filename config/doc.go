// Package config turns flags and KubeletConfiguration files into one plain
// struct, Config, from which node wires everything.
//
// It owns the names and meanings of the flags of podd run, the strict decoding
// of kubelet.config.k8s.io/v1beta1 with file, line and field of each mistake,
// the kubelet's defaults for what podd honours, their validation, and the table
// of which fields podd honours (Fields), which is the only place that says so.
//
// It leaves to others what a setting does. It opens nothing but the configuration
// files and does not depend on the state of the machine, except for the host's name.
//
// # Promises
//
//   - Order of precedence, later wins: the kubelet's defaults (in a few places
//     podd's own, said in Fields), the file of --config, the files of
//     --config-dir in lexical order, flags. Without --config the file is the
//     embedded standalone.yaml. A default that depends on other fields looks at
//     the first file only: one threshold in a drop-in file leaves the others.
//   - Nothing is dropped in silence. An unknown field or flag is an error; a
//     field that podd knows and does not honour is in Config.Warnings.
//   - All mistakes are reported at once, each as one sentence.
package config
