{{- /* The same binary as another user: the only container of the pod with the system bus, and without anything else. systemd lets uid 0
       on the bus start any unit, so the agent's container has no bus. */}}
{{- define "epitaph.container.logind" -}}
- name: logind
  image: {{ include "epitaph.image" . }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  command: [/epitaph]
  args: [logind]
  env:
    - {name: EPITAPH_LOGIND_SOCKET, value: /run/epitaph/logind.sock}
    - {name: EPITAPH_LOGIND_UID, value: {{ include "epitaph.logind.uid" . | quote }}}
    - {name: EPITAPH_LOGIND_LOCK, value: {{ or .Values.logind.lock .Values.logind.runAsRoot | quote }}}
    {{- with dig "log" "filter" "" .Values.config }}
    - {name: EPITAPH_LOG, value: {{ . | quote }}}
    {{- end }}
    {{- with dig "log" "format" "" .Values.config }}
    - {name: EPITAPH_LOG_FORMAT, value: {{ . | quote }}}
    {{- end }}
  resources:
    {{- toYaml .Values.logind.resources | nindent 4 }}
  securityContext:
    runAsUser: {{ include "epitaph.logind.uid" . }}
    runAsGroup: {{ include "epitaph.logind.uid" . }}
    runAsNonRoot: {{ not .Values.logind.runAsRoot }}
    privileged: false
    allowPrivilegeEscalation: false
    readOnlyRootFilesystem: true
    seccompProfile: {type: RuntimeDefault}
    {{- with .Values.logind.appArmorProfile }}
    appArmorProfile:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    {{- with .Values.logind.seLinuxOptions }}
    seLinuxOptions:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    capabilities:
      drop: [ALL]
  volumeMounts:
    # The directory: a mounted socket would be the old one after a restart of the bus.
    - {name: dbus, mountPath: /run/dbus, readOnly: true}
    # The agent's socket. A read-only mount does not stop connect(2).
    - {name: logind, mountPath: /run/epitaph, readOnly: true}
    # In place of the ServiceAccount's token, which Kubernetes mounts where nothing is: the role has no right in the cluster.
    - {name: no-token, mountPath: /var/run/secrets/kubernetes.io/serviceaccount, readOnly: true}
{{- end }}

{{- define "epitaph.logind.uid" -}}
{{ ternary 0 65534 .Values.logind.runAsRoot }}
{{- end }}
