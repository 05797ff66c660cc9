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
    {{- if and .Values.logind.appArmorProfile (include "epitaph.logind.hasAppArmorField" .) }}
    # The runtimes' default profile refuses the bus.
    appArmorProfile:
      {{- toYaml .Values.logind.appArmorProfile | nindent 6 }}
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

{{- /* Before 1.30 AppArmor is an annotation of the pod; an API server of that age drops the field. */}}
{{- define "epitaph.logind.hasAppArmorField" -}}
{{ if semverCompare ">=1.30-0" .Capabilities.KubeVersion.Version }}true{{ end }}
{{- end }}

{{- define "epitaph.logind.appArmor" -}}
{{- if and .Values.logind.enabled .Values.logind.appArmorProfile (not (include "epitaph.logind.hasAppArmorField" .)) }}
{{- with .Values.logind.appArmorProfile }}
# The runtimes' default profile refuses the bus. From Kubernetes 1.30 on a field has the same; API servers take the annotation, too.
container.apparmor.security.beta.kubernetes.io/logind: {{ get (dict "Unconfined" "unconfined" "RuntimeDefault" "runtime/default" "Localhost" (printf "localhost/%s" (.localhostProfile | default ""))) .type | quote }}
{{- end }}
{{- end }}
{{- end }}

{{- define "epitaph.logind.uid" -}}
{{ ternary 0 65534 .Values.logind.runAsRoot }}
{{- end }}
