{{- /* A container has a file of its own, so that the pod's containers (`_logind.tpl`) do not mix. */}}
{{- define "epitaph.container.agent" -}}
- name: agent
  image: {{ include "epitaph.image" . }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  command: [/epitaph]
  args: [agent, --config, /etc/epitaph/config/epitaph.toml]
  env:
    - {name: NODE_NAME, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
    {{- if .Values.journal.hostPath }}
    - {name: EPITAPH_JOURNAL_DIRECTORY, value: /var/lib/epitaph/journal}
    {{- end }}
    {{- if .Values.logind.enabled }}
    - {name: EPITAPH_LOGIND_SOCKET, value: /run/epitaph/logind.sock}
    - {name: EPITAPH_LOGIND_UID, value: {{ include "epitaph.logind.uid" . | quote }}}
    {{- end }}
    {{- with include "epitaph.env" . }}
    {{- . | nindent 4 }}
    {{- end }}
    {{- with .Values.agent.runtimeDirectories }}
    - {name: EPITAPH_CONTAINERS_DIRECTORIES, value: {{ join "," . | quote }}}
    {{- end }}
    {{- with .Values.agent.kubelet }}
    {{- if .configz }}
    - {name: EPITAPH_KUBELET_ADDRESS, valueFrom: {fieldRef: {fieldPath: status.hostIP}}}
    {{- end }}
    {{- if .config }}
    - {name: EPITAPH_KUBELET_CONFIG, value: /host/kubelet/config}
    {{- end }}
    {{- if .configDirectory }}
    - {name: EPITAPH_KUBELET_CONFIG_DIRECTORY, value: /host/kubelet/config.d}
    {{- end }}
    {{- if .state }}
    - {name: EPITAPH_KUBELET_STATE, value: /host/kubelet/graceful_node_shutdown_state}
    {{- end }}
    {{- end }}
    {{- with .Values.agent.extraEnv }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  ports:
    - {name: metrics, containerPort: 9464}
    # A port of its own for the kubelet's probes: clients of /metrics cannot delay the answers.
    - {name: health, containerPort: 9465}
  # The kernel verifies every probe at load: this takes seconds on a slow machine.
  startupProbe:
    httpGet: {path: /healthz, port: health}
    {{- toYaml .Values.agent.startupProbe | nindent 4 }}
  # What happens during a restart is not observed, so the probe is patient.
  livenessProbe:
    httpGet: {path: /healthz, port: health}
    {{- toYaml .Values.agent.livenessProbe | nindent 4 }}
  readinessProbe:
    httpGet: {path: /readyz, port: health}
    {{- toYaml .Values.agent.readinessProbe | nindent 4 }}
  resources:
    {{- toYaml .Values.agent.resources | nindent 4 }}
  # The reason for each right, and the error without: docs/privileges.md.
  securityContext:
    # Only root gets a container's capabilities: Kubernetes does not set ambient ones. hostPID and hostNetwork are not needed:
    # the host's /proc shows the processes, and the kernel's records have the host's pids.
    runAsUser: 0
    runAsGroup: 0
    # A user namespace (hostUsers: false) is not possible: the kernel does not accept such capabilities for bpf(2).
    privileged: false
    # No child process can gain the rights that the agent gave up.
    allowPrivilegeEscalation: false
    # The agent writes to its journal only.
    readOnlyRootFilesystem: true
    # RuntimeDefault allows bpf(2) with CAP_BPF: containerd from 1.7, Docker from 23.0.
    seccompProfile:
      {{- toYaml .Values.agent.seccompProfile | nindent 6 }}
    {{- with .Values.agent.seLinuxOptions }}
    seLinuxOptions:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    capabilities:
      drop: [ALL]
      # BPF: create the probes' maps, load the probes. PERFMON: probes may read the kernel's memory. The agent gives up both when
      # the probes run. Kernels before 5.11 also need SYS_RESOURCE: maps count as locked memory, and no pod can set that limit.
      add: [{{ join ", " .Values.agent.capabilities }}]
  volumeMounts:
    {{- include "epitaph.volumeMounts" . | nindent 4 }}
    # The processes of containers older than the agent, and the boot id. Every user may read these files.
    - {name: proc, mountPath: /host/proc, readOnly: true}
    # The existing cgroups. The container's own /sys has the kernel's type information (/sys/kernel/btf).
    - {name: cgroup, mountPath: /host/sys/fs/cgroup, readOnly: true}
    {{- range $i, $path := .Values.agent.runtimeDirectories }}
    {{- /* Not by the schema, whose message would not name the reason. The volume of a secret may be called `containers`. */}}
    {{- if regexMatch "/([.][.]|kubelet)(/|$)" $path }}
    {{- fail (printf "agent.runtimeDirectories: %s is a directory of the kubelet, which has the pods' secrets, or has `..` in it. Write the directory of a container runtime." $path) }}
    {{- end }}
    # HostToContainer: mounts of containers below would otherwise stay busy in the agent for as long as it runs.
    - {name: runtime-{{ $i }}, mountPath: {{ $path | quote }}, readOnly: true, mountPropagation: HostToContainer}
    {{- end }}
    {{- with .Values.agent.kubelet }}
    {{- /* One by one: the directory /var/lib/kubelet has the secrets of the pods. */}}
    {{- if .config }}
    - {name: kubelet-config, mountPath: /host/kubelet/config, readOnly: true}
    {{- end }}
    {{- if .configDirectory }}
    - {name: kubelet-config-directory, mountPath: /host/kubelet/config.d, readOnly: true}
    {{- end }}
    {{- if .state }}
    - {name: kubelet-state, mountPath: /host/kubelet/graceful_node_shutdown_state, readOnly: true}
    {{- end }}
    {{- end }}
    {{- if .Values.logind.enabled }}
    # The agent listens here for the container `logind`, which has the system bus.
    - {name: logind, mountPath: /run/epitaph}
    {{- end }}
    {{- if .Values.journal.hostPath }}
    # The journal: it must outlive the pod. The only path of the host that the agent writes to.
    - {name: journal, mountPath: /var/lib/epitaph}
    {{- end }}
    {{- with .Values.agent.extraVolumeMounts }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end }}
